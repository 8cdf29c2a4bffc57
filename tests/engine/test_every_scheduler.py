"""What must hold whichever scheduler serves: the greedy tokens, and an end to every request."""

import random
import threading

import pytest

from llmserve_lab import (
    PriorityScheduler,
    SamplingParams,
    Scheduler,
    StaticBatchingScheduler,
    SwapToHost,
)
from tests.engine.reference import greedy_tokens, ids, tokens_of

MAX_TOKENS = 12
GREEDY = SamplingParams(temperature=0, max_tokens=MAX_TOKENS)
LONG = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


class SendsBackOften(Scheduler):
    """Every `every` steps all running requests give up their blocks, and start again at once."""

    def __init__(self, every, preemption=None):
        super().__init__(preemption)
        self.every, self.steps = every, 0

    def schedule(self):
        self.steps += 1
        if self.steps % self.every == 0:
            while self.running:
                self._preempt(self.running[-1])
        return super().schedule()


SCHEDULERS = {
    "first come first served": Scheduler,
    "never preempted": lambda: Scheduler(max_preemptions=0),
    "swapped": lambda: Scheduler(SwapToHost(100)),
    "swapped while there is room": lambda: Scheduler(SwapToHost(5)),
    "priority": PriorityScheduler,
    "priority alone, swapped": lambda: PriorityScheduler(None, SwapToHost(20)),
    "static batches": lambda: StaticBatchingScheduler(4),
    "static batches that wait": lambda: StaticBatchingScheduler(4, max_wait=0.01),
}


@pytest.fixture(params=SCHEDULERS)
def make_scheduler(request):
    return SCHEDULERS[request.param]


@pytest.fixture(scope="module")
def prompts():
    source = random.Random(1)
    return [[source.randrange(1, 64) for _ in range(n)] for n in (1, 3, 4, 5, 8, 9, 16, 17, 30)]


@pytest.fixture(scope="module")
def expected(tiny, prompts):
    return [greedy_tokens(tiny.model, prompt, MAX_TOKENS) for prompt in prompts]


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 45), (4, 11), (16, 4), (4, 64)])
def test_greedy_tokens(make_llm, make_scheduler, prompts, expected, block_size, num_blocks,
                       prefix_caching):  # fmt: skip
    llm = make_llm(
        block_size=block_size,
        num_blocks=num_blocks,
        max_num_batched_tokens=7,
        enable_prefix_caching=prefix_caching,
        scheduler=make_scheduler(),
    )
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected
    assert tokens_of(llm.generate(ids(*prompts[::-1]), GREEDY)) == expected[::-1]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_greedy_tokens_under_preemption_at_every_step(
    make_llm, prompts, expected, every, prefix_caching, swap
):
    scheduler = SendsBackOften(every, SwapToHost(200) if swap else None)
    llm = make_llm(num_blocks=200, enable_prefix_caching=prefix_caching, scheduler=scheduler)
    outputs = llm.generate(ids(*prompts), GREEDY)
    assert tokens_of(outputs) == expected
    for output, tokens in zip(outputs, expected, strict=True):
        sent_back = [step for step in range(2, len(tokens) + 1) if step % every == 0]
        assert output.metrics.num_preemptions == len(sent_back)
    assert [len(output.metrics.token_times) for output in outputs] == [len(t) for t in expected]


@pytest.mark.parametrize("swap", [False, True])
def test_seeds_and_limits_survive_preemption(make_llm, prompts, swap):
    """Outputs that became prompt must count as outputs: seeds, min_tokens and max_tokens."""
    params = [
        SamplingParams(temperature=1.0, seed=n, min_tokens=6, max_tokens=9 + n)
        for n in range(len(prompts))
    ]
    plain = make_llm(num_blocks=200).generate(ids(*prompts), params)
    scheduler = SendsBackOften(2, SwapToHost(200) if swap else None)
    outputs = make_llm(num_blocks=200, scheduler=scheduler).generate(ids(*prompts), params)
    assert tokens_of(outputs) == tokens_of(plain)
    assert [o.outputs[0].finish_reason for o in outputs] == [
        o.outputs[0].finish_reason for o in plain
    ]


def test_continuations_of_one_prompt(make_llm, make_scheduler):
    params = SamplingParams(n=4, temperature=1.0, seed=5, max_tokens=8, ignore_eos=True)
    (plain,) = make_llm().generate(ids(range(1, 11)), params)
    llm = make_llm(num_blocks=13, scheduler=make_scheduler(), max_num_seqs=4)
    (output,) = llm.generate(ids(range(1, 11)), params)
    assert [one.token_ids for one in output.outputs] == [one.token_ids for one in plain.outputs]


@pytest.mark.parametrize("steps", range(6))
def test_an_abort_in_mid_prefill_leaves_the_prefix_right(make_llm, make_scheduler, tiny, steps):
    llm = make_llm(enable_prefix_caching=True, max_num_batched_tokens=5, scheduler=make_scheduler())
    prompt = list(range(1, 25))
    (name,) = llm.add_request(ids(prompt)[0], GREEDY)
    for _ in range(steps):
        llm.step()
    llm.abort(name)
    events = llm.step()
    assert [(event.request_id, event.finish_reason) for event in events] == [(name, "abort")]
    assert llm.pool.num_used == 0
    assert tokens_of(llm.generate(ids(prompt), GREEDY)) == [
        greedy_tokens(tiny.model, prompt, MAX_TOKENS)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_random_aborts_free_everything_by_the_next_step(make_llm, make_scheduler, prompts, seed):
    source = random.Random(seed)
    llm = make_llm(num_blocks=24, max_num_batched_tokens=9, scheduler=make_scheduler())
    alive = {name for prompt in prompts for name in llm.add_request(ids(prompt)[0], LONG)}
    swap = getattr(llm.scheduler, "preemption", None)
    while alive:
        for _ in range(source.randrange(8)):
            alive -= {e.request_id for e in llm.step() if e.finish_reason}
        if alive:
            gone = source.choice(sorted(alive))
            llm.abort(gone)
            ended = {e.request_id: e.finish_reason for e in llm.step() if e.finish_reason}
            assert ended[gone] == "abort"
            alive -= set(ended)
        held = [block for r in llm._engine.requests.values() for block in r.block_table]
        assert sum(llm.pool.refs()) == len(held)
        llm.pool.check_integrity()
    assert not llm.has_work
    assert getattr(swap, "num_used", 0) == 0


def test_aborts_from_another_thread(make_llm, make_scheduler, prompts, tiny):
    """Half of the requests are aborted while the others run; those come out right."""
    llm = make_llm(num_blocks=40, max_num_batched_tokens=9, scheduler=make_scheduler())
    names = [llm.add_request(ids(prompt)[0], GREEDY)[0] for prompt in prompts]
    doomed, events, began = names[::2], [], threading.Event()

    def abort():
        began.wait(60)
        for name in doomed:
            llm.abort(name)

    worker = threading.Thread(target=abort)
    worker.start()
    while llm.has_work:
        events += llm.step()
        began.set()
    worker.join(60)
    llm.step()
    for name, prompt in zip(names, prompts, strict=True):
        mine = [event for event in events if event.request_id == name]
        tokens = tuple(event.token_id for event in mine if event.token_id is not None)
        wanted = greedy_tokens(tiny.model, prompt, MAX_TOKENS)
        if mine[-1].finish_reason == "abort":
            assert name in doomed
            assert tokens == wanted[: len(tokens)]
        else:
            assert tokens == wanted


def test_an_oversize_request_is_refused_at_once_and_blocks_nobody(make_llm, make_scheduler, tiny):
    llm = make_llm(num_blocks=6, scheduler=make_scheduler())
    (name,) = llm.add_request("abc", GREEDY)
    with pytest.raises(ValueError, match="60 tokens, 15 blocks of 4; the KV cache has 6"):
        llm.add_request(ids(range(1, 21))[0], SamplingParams(max_tokens=40))
    with pytest.raises(ValueError, match="the KV cache has 6"):
        llm.generate(["xyz", "a" * 30], GREEDY)
    events = []
    while llm.has_work:
        events += llm.step()
    assert {event.request_id for event in events} == {name}
    assert tuple(event.token_id for event in events) == greedy_tokens(tiny.model, [1, 2, 3], 12)


def test_the_trace_tells_every_scheduler(make_llm, make_scheduler, prompts):
    """Every step is one that ran or sent back something, and owns what it shows."""
    llm = make_llm(num_blocks=12, scheduler=make_scheduler(), trace=True)
    llm.generate(ids(*prompts), GREEDY)
    for step in llm.trace:
        assert step.scheduled or step.preempted
        held = [block for view in (*step.running, *step.finished) for block in view.block_table]
        assert all(
            step.block_refs[block] > 0 for view in step.running for block in view.block_table
        )
        assert set(held) >= {b for b, count in enumerate(step.block_refs) if count}
