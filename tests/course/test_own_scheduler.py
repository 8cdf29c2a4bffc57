"""Exercise 19's scheduler: what it is written on, and what is said of one that breaks a rule."""

from __future__ import annotations

import random

import pytest

from llmserve_lab import LLM, SamplingParams, Scheduled
from llmserve_lab.course import check
from llmserve_lab.course.checks.ex19 import (
    Continuous,
    _crowd,
    _long_prompts,
    _offline,
    _tight,
    continuous_steps,
    static_steps,
)
from llmserve_lab.course.checks.ex19_schedulers import SCHEDULER
from llmserve_lab.course.checks.grader import CheckFailed
from llmserve_lab.course.checks.ledger import answer_of
from llmserve_lab.course.checks.scheduler_trial import static_steps as steps_of_static
from llmserve_lab.course.own_scheduler import OwnScheduler
from llmserve_lab.engine.errors import SchedulerError

WORDS = {
    "starves long prompts": "it starves",
    "last in, first out": "it starves",
    "ignores the token budget": "tokens in a step of at most",
    "does not take from the budget": "tokens in a step of at most",
    "ignores the places": "sequences in a step of at most",
    "admits without blocks": "lacks blocks",
    "goes on although blocks are missing": "lacks blocks",
    "forgets those who run when it admits": "who runs goes on in every step",
    "stands still without blocks": "who runs goes on in every step",
    "static in disguise": r"1.5 times the throughput of static batching \(\d+ steps\), got \d+",
    "never cuts a prompt": "chose nothing|starves",
    "reads prompts token by token": "1.5 times the throughput",
    "sends everybody back": "brought no request any further|its answer changes|1.5 times",
    "starts cut prompts again": "brought no request any further",
    "takes room from those who run": "sequences in a step|end its loop|lacks blocks|must go on",
    "leaves out part of the prompt": "its answer changes",
    "loses what was answered": "its answer changes",
    "never leaves its loop": "end its loop",
    "plans nobody": "chose nothing",
    "returns requests": "list of Scheduled",
}


@pytest.mark.parametrize("mistake", SCHEDULER)
def test_each_mistake_is_told_in_words(mistake):
    with pytest.raises(CheckFailed, match=WORDS[mistake]) as failure:
        check.ex19_scheduler.grade(SCHEDULER[mistake], 1)
    assert "\n" not in str(failure.value)


def test_every_mistake_has_its_words():
    assert set(WORDS) == set(SCHEDULER)


class Reserving(OwnScheduler):
    """Another right answer: room for the whole answer from the start, so nobody is sent back."""

    def plan(self):
        while self.waiting and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting[0]
            if not self.grow(request, request.num_prompt_tokens + request.params.max_tokens):
                break
            self.start(request)
        batch, left = [], self.limits.max_num_batched_tokens
        for request in self.running:
            count = min(request.num_uncomputed_tokens, left)
            if count > 0:
                batch.append(self.part(request, count))
                left -= count
        return batch


@pytest.mark.parametrize("kind", [Continuous, Reserving])
def test_every_right_scheduler_is_accepted(kind):
    for seed in range(5):
        check.ex19_scheduler.grade(kind, seed)


class Blank(OwnScheduler):
    def plan(self):
        raise NotImplementedError("exercise 19.4: write the plan")


def test_a_blank_plan_passes_its_own_error_on():
    with pytest.raises(NotImplementedError, match=r"^exercise 19\.4"):
        check.ex19_scheduler(Blank)
    with pytest.raises(NotImplementedError, match="write plan"):
        check.ex19_scheduler(OwnScheduler)


class Raising(OwnScheduler):
    def plan(self):
        return self.waiting[99]


def test_an_error_in_the_plan_is_told():
    with pytest.raises(CheckFailed, match="your plan raised IndexError: 3 requests are waiting"):
        check.ex19_scheduler.grade(Raising, 1)


@pytest.mark.parametrize("answer", [Continuous(), 7, int, "Continuous"])
def test_what_is_no_scheduler_class_is_told(answer):
    with pytest.raises(CheckFailed, match="expected a class that is an OwnScheduler"):
        check.ex19_scheduler.grade(answer, 1)


def test_the_trials_are_what_they_say():
    """The long prompts need chunks, the tight one sends back, the offline one gains."""
    sent = []

    class Noting(Continuous):
        def plan(self):
            batch = super().plan()
            sent.append((len(self.preempted), sum(item.num_tokens for item in batch)))
            return batch

    for seed in range(5):
        rng = random.Random(seed)
        for make, preempts in (
            (_offline, False),
            (_long_prompts, False),
            (_crowd, False),
            (_tight, True),
        ):
            sent.clear()
            trial = make(rng)
            assert trial.fault(Noting) is None
            assert any(back for back, _ in sent) == preempts
            assert max(tokens for _, tokens in sent) <= trial.budget
        lengths = [ask.output_tokens for ask in _offline(rng).workload.asks]
        assert static_steps(lengths, 4) > 1.5 * continuous_steps(lengths, 4)


def test_the_formulas_count_the_engines_steps():
    """With room for all prompts in a step, an answer of n tokens takes n steps of its place."""
    for seed in range(5):
        trial = _offline(random.Random(seed))
        lengths = [ask.output_tokens for ask in trial.workload.asks]
        assert steps_of_static(trial) == static_steps(lengths, trial.slots)
        result, _ = trial._run(Continuous())
        assert result.num_steps == continuous_steps(lengths, trial.slots)


def test_an_answer_depends_on_every_token_of_its_prompt():
    assert len({tuple(answer_of([a, b, 3], 4)) for a in range(9) for b in range(9)}) > 75


class Endless(OwnScheduler):
    def plan(self):
        while not self.grow(self.waiting[0], 10**6):
            pass


def test_an_endless_loop_ends_with_a_sentence(tiny):
    llm = LLM(tiny, num_blocks=8, scheduler=Endless())
    with pytest.raises(SchedulerError, match="end its loop"):
        llm.generate("abc")
    assert llm.pool.num_used == 0


@pytest.mark.parametrize("kind", [Continuous, Reserving])
def test_it_serves_a_real_model_with_the_same_tokens(make_llm, kind):
    params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
    prompts = ["abc", "a longer prompt, longer than a step", "xyz", "q"]
    settings = {"num_blocks": 20, "max_num_batched_tokens": 8, "max_num_seqs": 3}
    plain = make_llm().generate(prompts, params)
    ours = make_llm(scheduler=kind(), **settings).generate(prompts, params)
    assert [o.outputs[0].token_ids for o in ours] == [o.outputs[0].token_ids for o in plain]


def test_a_part_is_the_next_tokens(make_llm):
    seen = []

    class Looking(Continuous):
        def plan(self):
            batch = super().plan()
            seen.extend(item for item in batch)
            assert all(self.part(i.request, i.num_tokens) == i for i in batch)
            return batch

    make_llm(scheduler=Looking()).generate("abc", SamplingParams(max_tokens=2, ignore_eos=True))
    assert all(type(item) is Scheduled for item in seen) and len(seen) == 2
