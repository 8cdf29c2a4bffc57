"""async_scheduling: a step's tokens are read while the next one runs, and nobody can tell by what
comes out."""

import random

import pytest
import torch

from llmserve_lab import (
    PriorityScheduler,
    PromptLookup,
    ReservingScheduler,
    SamplingParams,
    Scheduler,
    SchedulerError,
    StaticBatchingScheduler,
    SwapToHost,
)
from llmserve_lab.engine.cuda_graphs import DecodeGraphs, EagerGraph
from llmserve_lab.engine.decode_buffers import DecodeBuffers
from llmserve_lab.engine.unread import Unread
from tests.engine.reference import ids, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=12)
SAMPLINGS = [
    GREEDY,
    SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, logprobs=2),
    SamplingParams(temperature=1.3, seed=1, max_tokens=14, top_k=20),
    SamplingParams(temperature=1.3, seed=2, max_tokens=10, min_p=0.02, echo=True, logprobs=1),
    SamplingParams(temperature=1.0, seed=3, max_tokens=12, repetition_penalty=1.3),
    SamplingParams(temperature=0, max_tokens=12, presence_penalty=1.0, frequency_penalty=0.7),
    SamplingParams(temperature=1.5, seed=4, max_tokens=20, stop=["a", "Zx"]),
    SamplingParams(temperature=1.5, seed=5, max_tokens=20, stop_token_ids=list(range(20, 40))),
    SamplingParams(temperature=1.5, seed=6, max_tokens=20, min_tokens=5, stop_token_ids=[7, 8, 9]),
    SamplingParams(temperature=0, max_tokens=1),
    SamplingParams(temperature=1.0, seed=7, max_tokens=8, prompt_logprobs=1, logit_bias={5: 9.0}),
    SamplingParams(temperature=1.0, seed=8, max_tokens=8, n=3, stop_token_ids=list(range(1, 16))),
    SamplingParams(temperature=0, max_tokens=8, allowed_token_ids=[3, 4, 5, 6]),
]
OUTCOMES = ("generation_tokens", "finished", "aborted")
COUNTS = ("prompt_tokens", "computed_tokens", *OUTCOMES)  # where nobody waits for room


def prompts_of(count, seed=0):
    source = random.Random(seed)
    lengths = [1, 4, 8, 9, 17, *(source.randrange(1, 40) for _ in range(count))][:count]
    return ids(*[[source.randrange(1, 64) for _ in range(length)] for length in lengths])


def seen(outputs):
    """All that a caller gets, times apart. Sums are rounded: another batch may end them otherwise
    in the last bits."""
    return [
        (
            rounded(output.prompt_logprobs),
            [(o.token_ids, o.text, o.finish_reason, rounded(o.logprobs)) for o in output.outputs],
        )
        for output in outputs
    ]


def rounded(entries):
    return [
        {token: (round(known.logprob, 3), known.rank) for token, known in (entry or {}).items()}
        for entry in entries or ()
    ]


def counts(llm, names):
    metrics = llm.metrics
    return {name: getattr(metrics, name) for name in names}


@pytest.fixture
def both(make_llm):
    """Runs the same at once and late; returns what came of it."""

    def compare(run, names=COUNTS, scheduler=Scheduler, **settings):
        results = []
        for late in (False, True):
            llm = make_llm(scheduler=scheduler(), async_scheduling=late, **settings)
            results.append((run(llm), counts(llm, names)))
        at_once, late = results
        assert late == at_once
        return late[0]

    return compare


def mixed(llm):
    return seen(llm.generate(prompts_of(len(SAMPLINGS)), SAMPLINGS))


def test_the_samplings_end_in_every_way(make_llm):
    reasons = {reason for _, outputs in mixed(make_llm()) for _, _, reason, _ in outputs}
    assert reasons == {"stop", "length"}


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("budget", [1, 3, 7, 2048])
def test_every_sampling(both, budget, prefix_caching):
    both(mixed, num_blocks=200, max_num_batched_tokens=budget, enable_prefix_caching=prefix_caching)


@pytest.mark.parametrize("max_num_seqs", [1, 2, 5])
def test_with_few_places(both, max_num_seqs):
    both(mixed, max_num_seqs=max_num_seqs)


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda: Scheduler(SwapToHost(6)),
        lambda: Scheduler(max_preemptions=0),
        PriorityScheduler,
        ReservingScheduler,
        lambda: StaticBatchingScheduler(4),
    ],
)
@pytest.mark.parametrize("num_blocks", [20, 64])
def test_every_scheduler(both, scheduler, num_blocks):
    both(mixed, OUTCOMES, scheduler, num_blocks=num_blocks)


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 60), (3, 20), (4, 16)])
def test_under_preemption(both, block_size, num_blocks, prefix_caching):
    def run(llm):
        outputs = llm.generate(prompts_of(11), SAMPLINGS[:11])
        assert sum(output.metrics.num_preemptions for output in outputs) > 0
        return seen(outputs)

    both(run, OUTCOMES, block_size=block_size, num_blocks=num_blocks, max_num_batched_tokens=7,
         enable_prefix_caching=prefix_caching)  # fmt: skip


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_step_by_step_where_all_ends_are_known_before(both, prefix_caching):
    """Ends by length need nobody to read: blocks, hits and preemptions are those of each step."""
    params = [
        SamplingParams(temperature=1.2, seed=i, max_tokens=3 + i % 7, ignore_eos=True)
        for i in range(12)
    ]

    def run(llm):
        return [seen(llm.generate(prompts_of(12), params)) for _ in range(2)]

    names = (*COUNTS, "scheduled_sequences", "preemptions", "prefix_queries", "prefix_hits")
    both(run, names, num_blocks=24, max_num_batched_tokens=16,
         enable_prefix_caching=prefix_caching)  # fmt: skip


def test_drawn_without_a_seed(both):
    def run(llm):
        torch.manual_seed(0)
        return tokens_of(llm.generate(prompts_of(6), SamplingParams(max_tokens=9, ignore_eos=True)))

    both(run)


@pytest.mark.parametrize("after", range(8))
def test_an_abort_finds_the_same_tokens(both, after):
    def run(llm):
        names = [llm.add_request(prompt, GREEDY)[0] for prompt in prompts_of(4)]
        events = [event for _ in range(after) for event in llm.step()]
        llm.abort(names[1])
        while llm.has_work:
            events += llm.step()
        told = [(e.request_id, e.index, e.token_id, e.text, e.finish_reason) for e in events]
        return sorted(told, key=lambda event: event[:2])

    both(run, max_num_batched_tokens=20)


def test_a_stream_left_early(both):
    def run(llm):
        stream = llm.stream(prompts_of(3), GREEDY)
        first = [next(stream).token_id for _ in range(5)]
        stream.close()
        return first, mixed(llm)

    both(run, ("prompt_tokens",))


def test_requests_that_come_and_go(both):
    """Random arrivals between steps, a few aborts."""

    def run(llm, seed):
        source = random.Random(seed)
        events, names = [], []
        for prompt in prompts_of(30, seed):
            for _ in range(source.randrange(3)):
                events += llm.step()
            names += llm.add_request(prompt, source.choice(SAMPLINGS))
        while llm.has_work:
            events += llm.step()
        told = {name: [] for name in names}
        for event in events:
            told[event.request_id].append((event.token_id, event.text, event.finish_reason))
        return told

    for seed in range(4):
        both(lambda llm, seed=seed: run(llm, seed), OUTCOMES,
             num_blocks=40, max_num_batched_tokens=24, enable_prefix_caching=True)  # fmt: skip


def test_a_step_runs_before_the_tokens_of_the_one_before_are_read(make_llm, monkeypatch):
    order = []
    llm = make_llm(async_scheduling=True)
    runner = llm._engine.runner
    run, read = runner.run, Unread.read
    monkeypatch.setattr(runner, "run", lambda *args: order.append("run") or run(*args))
    monkeypatch.setattr(Unread, "read", lambda unread: order.append("read") or read(unread))
    llm.generate(prompts_of(3), SamplingParams(temperature=0, max_tokens=5, ignore_eos=True))
    assert order == ["run", "run", "read", "run", "read", "run", "read", "run", "read", "read"]


def test_what_ran_for_a_request_that_had_ended_is_dropped(make_llm):
    llm = make_llm(async_scheduling=True)
    (prompt,) = prompts_of(1)
    free = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=9, ignore_eos=True))
    last = free[0].outputs[0].token_ids[2]
    llm.reset_metrics()
    params = SamplingParams(temperature=0, max_tokens=9, stop_token_ids=[last])
    (output,) = llm.generate(prompt, params)
    tokens = output.outputs[0].token_ids
    assert tokens[-1] == last
    assert output.outputs[0].finish_reason == "stop"
    assert llm.metrics.generation_tokens == len(tokens)
    assert llm.metrics.computed_tokens == len(prompt["prompt_token_ids"]) + len(tokens) - 1


class Faulty(Scheduler):
    """Breaks a rule in its fifth step."""

    steps = 0

    def schedule(self):
        self.steps += 1
        batch = super().schedule()
        return batch * 2 if self.steps == 5 else batch


def test_after_a_fault_of_the_scheduler_all_start_over(make_llm):
    """Also the one whose last token is chosen and not yet read."""
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (4, 9, 3)]
    wanted = tokens_of(make_llm().generate(prompts_of(3), params))
    llm = make_llm(async_scheduling=True, scheduler=Faulty())
    names = [llm.add_request(p, s)[0] for p, s in zip(prompts_of(3), params, strict=True)]
    events = []
    with pytest.raises(SchedulerError, match="is in the step twice"):
        for _ in range(9):
            events += llm.step()
    while llm.has_work:
        events += llm.step()
    told = [tuple(e.token_id for e in events if e.request_id == name) for name in names]
    assert told == [tuple(tokens) for tokens in wanted]


class OneOutput(EagerGraph):
    """As a captured graph, it has one place for what comes out."""

    def __init__(self, step, pool):
        super().__init__(step, pool)
        self.output = step()

    def replay(self):
        with torch.inference_mode():
            return self.output.copy_(self.step())


def test_captured_decode_steps(make_llm):
    """Their logits are written over by the next step, and their ids come from the device."""
    wanted = mixed(make_llm())
    llm = make_llm(async_scheduling=True)
    runner = llm._engine.runner
    buffers = DecodeBuffers(runner.cache, 64, 16, llm.max_model_len, runner.device)
    runner.graphs = DecodeGraphs(runner.forward, runner.attention, buffers, OneOutput)
    assert mixed(llm) == wanted


@pytest.mark.parametrize("settings", [{"trace": True}, {"draft": PromptLookup()}])
def test_what_it_does_not_go_with(make_llm, settings):
    with pytest.raises(ValueError, match="async_scheduling goes with none of draft, trace and"):
        make_llm(async_scheduling=True, **settings)
