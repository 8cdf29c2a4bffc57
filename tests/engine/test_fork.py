"""Continuations of one prompt share its blocks until they write, and nothing else changes."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from llmserve_lab import SamplingParams, Scheduler
from llmserve_lab.engine.preemption import SwapToHost
from llmserve_lab.engine.priority import PriorityScheduler
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Limits, Scheduled
from llmserve_lab.engine.static_scheduler import StaticBatchingScheduler
from llmserve_lab.engine.validate import SchedulerError
from tests.engine.counting_model import LONGEST, VOCABULARY, build, expected_output
from tests.engine.reference import greedy_tokens, ids
from tests.engine.test_scheduler import SchedulerMachine

PROMPT = list(range(1, 11))  # 10 tokens: two blocks of 4 and half of a third
RANDOM = SamplingParams(n=4, temperature=1.0, max_tokens=9, seed=20, ignore_eos=True)


class ForkMachine(SchedulerMachine):
    """The machine of the schedulers, with prompts that several requests continue."""

    @precondition(lambda self: self.engine is not None)
    @rule(
        prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=LONGEST),
        max_tokens=st.integers(1, LONGEST),
        seeds=st.lists(st.integers(0, 3), min_size=2, max_size=4),
        salt=st.sampled_from(["", "x"]),
    )
    def add_group(self, prompt, max_tokens, seeds, salt):
        prompt = prompt[: self.longest - 1] or [1]
        if len(prompt) >= self.longest:
            return
        group = []
        for seed in seeds:
            params = SamplingParams(max_tokens=max_tokens, seed=seed)
            group.append(Request(f"{len(self.requests)}", prompt, params, cache_salt=salt))
            self.requests[group[-1].request_id] = group[-1]
        group[0].forks = group[1:]
        self.engine.add(group[0])

    @invariant()
    def every_request_is_in_one_place(self):
        if self.engine is None:
            return
        scheduler = self.engine.scheduler
        placed = [*scheduler.waiting, *scheduler.running]
        placed += [f for r in placed for f in r.forks if f.status.value != "finished"]
        assert sorted(r.request_id for r in placed) == sorted(self.engine.requests)

    @invariant()
    def outputs_are_right(self):
        for r in self.requests.values():
            params = r.params
            tokens = r.prompt_token_ids, params.max_tokens, self.longest, params.seed
            wanted = expected_output(*tokens)
            done = r.finish_reason in ("stop", "length")
            assert r.output_token_ids == (wanted if done else wanted[: r.num_output_tokens])

    @invariant()
    def who_may_share_is_known(self):
        """Each block that is not full and has several owners belongs to requests that know it."""
        if self.engine is None:
            return
        pool = self.engine.scheduler.pool
        for request in self.engine.requests.values():
            if pool.num_shared(request.block_table, request.num_computed_tokens):
                assert request.shares_blocks


class NeverPreempted(ForkMachine):
    @staticmethod
    def scheduler(limits):
        return Scheduler(max_preemptions=0)


class Swapped(ForkMachine):
    @staticmethod
    def scheduler(limits):
        return Scheduler(SwapToHost(num_blocks=4))


class ByPriority(ForkMachine):
    @staticmethod
    def scheduler(limits):
        return PriorityScheduler(aging=1.0)


MACHINE = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("machine", [ForkMachine, NeverPreempted, Swapped, ByPriority])
def test_random_operations(machine):
    case = machine.TestCase
    case.settings = MACHINE
    case().runTest()


def texts(outputs):
    return [output.token_ids for output in outputs[0].outputs]


def alone(make_llm, params, prompt=PROMPT, **options):
    """What each continuation is as a request of its own."""
    made = [make_llm(**options).generate(ids(prompt), params.continuation(i)) for i in range(4)]
    return [tokens for outputs in made for tokens in texts(outputs)]


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 10])
@pytest.mark.parametrize("budget", [3, 2048])
def test_the_texts_are_those_of_separate_requests(make_llm, length, budget):
    prompt = PROMPT[:length]
    llm = make_llm(max_num_batched_tokens=budget)
    assert texts(llm.generate(ids(prompt), RANDOM)) == alone(make_llm, RANDOM, prompt)


@pytest.mark.parametrize("attention", ["reference", "cpu"])
def test_the_prompt_is_computed_once_and_its_blocks_are_shared(make_llm, attention):
    llm = make_llm(trace=True, attention_backend=attention)
    outputs = llm.generate(ids(PROMPT), RANDOM)
    assert len(set(texts(outputs))) == 4
    assert texts(outputs) == alone(make_llm, RANDOM, attention_backend=attention)
    first, second = llm.trace.steps[:2]
    assert [item.num_tokens for item in first.scheduled] == [10]
    assert len(first.sampled) == 4
    assert sorted(first.block_refs)[-3:] == [4, 4, 4]
    assert sorted(second.block_refs)[-6:] == [1, 1, 1, 1, 4, 4]  # full ones stay shared
    prompt_tokens = sum(item.num_prompt_tokens for step in llm.trace for item in step.scheduled)
    assert prompt_tokens == len(PROMPT)
    assert all(output.metrics.ttft is not None for output in outputs[0].outputs)


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("num_blocks", range(5, 14))
def test_preemption_of_siblings(make_llm, num_blocks, prefix_caching):
    """From room for one continuation to room for all four."""
    llm = make_llm(num_blocks=num_blocks, enable_prefix_caching=prefix_caching)
    outputs = llm.generate(ids(PROMPT), RANDOM)
    assert texts(outputs) == alone(make_llm, RANDOM)
    preemptions = sum(output.metrics.num_preemptions for output in outputs[0].outputs)
    assert (preemptions > 0) == (num_blocks < 2 + 4 * 3)


@pytest.mark.parametrize(
    "scheduler",
    [
        Scheduler(SwapToHost(num_blocks=8)),
        Scheduler(max_preemptions=0),
        PriorityScheduler(),
        StaticBatchingScheduler(batch_size=3),
    ],
    ids=["swap", "no preemption", "priority", "static"],
)
def test_every_scheduler(make_llm, scheduler):
    llm = make_llm(num_blocks=9, scheduler=scheduler)
    assert texts(llm.generate(ids(PROMPT), RANDOM)) == alone(make_llm, RANDOM)


@pytest.mark.parametrize("max_num_seqs", [1, 2, 3])
def test_those_that_find_no_place_wait(make_llm, max_num_seqs):
    llm = make_llm(max_num_seqs=max_num_seqs, trace=True)
    assert texts(llm.generate(ids(PROMPT), RANDOM)) == alone(make_llm, RANDOM)
    assert max(len(step.scheduled) for step in llm.trace) == max_num_seqs


@pytest.mark.parametrize("steps", range(5))
@pytest.mark.parametrize("others", [0, 1, 2])
def test_abort_of_all_frees_everything(make_llm, steps, others):
    """In mid prefill, right after the fork, and later; with or without somebody else running."""
    llm = make_llm(max_num_batched_tokens=4)
    for text in ("abc", "xyz")[:others]:
        llm.add_request(text, SamplingParams(max_tokens=30, ignore_eos=True))
    names = llm.add_request(ids(PROMPT)[0], RANDOM)
    shared_by = names[0].split(".")[0]
    for _ in range(steps):
        llm.step()
    llm.abort(shared_by)
    ended = {e.request_id for e in llm.step() if e.finish_reason == "abort"}
    assert ended == set(names)
    assert llm.pool.num_used == sum(len(r.block_table) for r in llm.scheduler.running)
    for number in range(others):
        llm.abort(f"{number}")
    llm.step()


@pytest.mark.parametrize("steps", range(5))
@pytest.mark.parametrize("which", range(4))
def test_abort_of_one_leaves_the_others_right(make_llm, steps, which):
    llm = make_llm(max_num_batched_tokens=5)
    names = llm.add_request(ids(PROMPT)[0], RANDOM)
    events = [event for _ in range(steps) for event in llm.step()]
    llm.abort(names[which])
    while llm.has_work:
        events += llm.step()
    wanted = alone(make_llm, RANDOM)
    for index, name in enumerate(names):
        got = tuple(e.token_id for e in events if e.request_id == name and e.token_id is not None)
        assert got == (wanted[index] if index != which else wanted[index][: len(got)])


def test_each_continuation_is_found_again_as_it_is(make_llm, tiny):
    """Their cached blocks form chains of their own, from where they part."""
    llm = make_llm(enable_prefix_caching=True)
    greedy = SamplingParams(temperature=0, max_tokens=4)
    for tokens in texts(llm.generate(ids(PROMPT), RANDOM)):
        asked = [*PROMPT, *tokens, 1]
        output = llm.generate(ids(asked)[0], greedy)[0]
        assert output.metrics.num_hit_tokens == 16  # of 18 whose KV was computed
        assert output.outputs[0].token_ids == greedy_tokens(tiny.model, asked, 4)


def test_continuations_of_one_token(make_llm):
    params = SamplingParams(n=4, seed=20, max_tokens=1, ignore_eos=True)
    outputs = make_llm().generate(ids(PROMPT), params)
    assert texts(outputs) == alone(make_llm, params)


def test_a_scheduler_that_writes_into_shared_blocks_is_told():
    class Careless(Scheduler):
        def schedule(self):
            if not self.running:
                return super().schedule()
            for request in self.running:  # no _grow: there is room in the last block
                request.block_table = request.block_table or self.pool.allocate(1)
            return [Scheduled(r, r.num_computed_tokens, 1) for r in self.running]

    engine = build(8, 4, Limits(8, 64), scheduler=Careless())
    group = [Request(f"{i}", [1, 2], SamplingParams(max_tokens=4, seed=i)) for i in range(2)]
    group[0].forks = group[1:]
    engine.add(group[0])
    engine.step()
    with pytest.raises(SchedulerError, match="'0' would write into a block that others read"):
        engine.step()


def test_ids_of_continuations_must_be_new():
    engine = build(8, 4, Limits(8, 64))
    engine.add(Request("1", [1], SamplingParams()))
    late = Request("0", [1], SamplingParams(), forks=[Request("1", [1], SamplingParams())])
    with pytest.raises(ValueError, match="'1' is under way"):
        engine.add(late)
    assert list(engine.requests) == ["1"]
    assert list(engine.detokenizers) == ["1"]


def test_logprobs_of_prompt_and_outputs_belong_to_each(make_llm):
    params = SamplingParams(n=3, seed=20, max_tokens=4, logprobs=1, prompt_logprobs=1)
    llm = make_llm()
    output = llm.generate(ids(PROMPT), params)[0]
    for index, continuation in enumerate(output.outputs):
        wanted = make_llm().generate(ids(PROMPT), params.continuation(index))[0]
        assert len(output.prompt_logprobs) == len(PROMPT)
        for got, entry in zip(continuation.logprobs, wanted.outputs[0].logprobs, strict=True):
            assert got.keys() == entry.keys()
