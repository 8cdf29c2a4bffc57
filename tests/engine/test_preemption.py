"""Preemption: bounded, with progress, and with either policy the same text."""

import pytest

from llmserve_lab import Recompute, SamplingParams, Scheduler, SwapToHost
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Limits
from tests.engine.counting_model import build, expected_output

WIDE = Limits(8, 64)


def request(name, prompt=(1, 1), max_tokens=6):
    return Request(name, list(prompt), SamplingParams(max_tokens=max_tokens, ignore_eos=True))


def run(engine, requests):
    """All to their end; returns the number of tokens that were computed."""
    for one in requests:
        engine.add(one)
    computed, original = [], engine.runner.run

    def counted(batch):
        computed.append(sum(item.num_tokens for item in batch))
        return original(batch)

    engine.runner.run = counted
    while engine.has_work:
        engine.step()
        engine.scheduler.pool.check_integrity()
    assert engine.scheduler.pool.num_used == 0
    return sum(computed)


def right_outputs(engine, requests):
    for one in requests:
        tokens = list(one.prompt_token_ids)
        wanted = []
        while len(wanted) < one.params.max_tokens:
            wanted += expected_output(tokens + wanted, 1, 10**6)
        assert one.output_token_ids == wanted[: one.params.max_tokens]


CROWD = [(f"{n}", (1 + n % 4,) * (2 + n % 5), 9 + n % 7) for n in range(24)]


@pytest.mark.parametrize("most", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("swap", [False, True])
def test_preemptions_are_bounded_under_thrash(most, swap):
    """24 requests over blocks for two: without a bound each one would be sent back again and
    again."""
    policy = SwapToHost(num_blocks=64) if swap else Recompute()
    engine = build(20, 2, WIDE, scheduler=Scheduler(policy, max_preemptions=most))
    requests = [request(*one) for one in CROWD]
    run(engine, requests)
    right_outputs(engine, requests)
    counts = [one.num_preemptions for one in requests]
    assert max(counts) <= most
    assert (sum(counts) > 0) == (most > 0)


def test_whoever_must_finish_starts_with_every_block_and_is_left_alone():
    scheduler = Scheduler(max_preemptions=1)
    engine = build(7, 2, WIDE, scheduler=scheduler)
    first, second = request("first", max_tokens=12), request("second", max_tokens=8)
    engine.add(first)
    engine.add(second)
    while not second.num_preemptions:
        engine.step()
    while not second.block_table:
        engine.step()
    assert first.finish_reason == "length"  # 5 blocks are more than it left over
    assert len(second.block_table) == 5
    third = request("third", prompt=[1] * 5, max_tokens=4)
    engine.add(third)
    run(engine, [])
    assert second.num_preemptions == 1
    right_outputs(engine, [first, second, third])


def test_a_prompt_waits_until_all_of_it_fits():
    """Else its first chunks are computed for nothing."""
    engine = build(8, 2, Limits(8, 4), scheduler=Scheduler())
    engine.add(request("runs", prompt=[1] * 4, max_tokens=8))
    engine.step()
    engine.add(request("long", prompt=[1] * 14, max_tokens=2))
    engine.step()
    assert [r.request_id for r in engine.scheduler.waiting] == ["long"]
    assert engine.scheduler.waiting[0].block_table == []
    run(engine, [])
    assert engine.scheduler.pool.num_used == 0


def test_a_swap_computes_nothing_twice():
    def tokens_computed(policy):
        engine = build(20, 2, WIDE, scheduler=Scheduler(policy))
        requests = [request(*one) for one in CROWD]
        computed = run(engine, requests)
        right_outputs(engine, requests)
        return computed

    once = sum(len(prompt) + count - 1 for _, prompt, count in CROWD)
    swap = SwapToHost(num_blocks=1000)
    assert tokens_computed(swap) == once
    assert swap.num_swapped_out == swap.num_swapped_in > 0
    assert swap.num_used == 0
    assert tokens_computed(Recompute()) > once
    assert once < tokens_computed(SwapToHost(num_blocks=4)) < tokens_computed(Recompute())


def test_an_abort_while_swapped_out_frees_host_memory():
    swap = SwapToHost(num_blocks=100)
    scheduler = Scheduler(swap)
    engine = build(6, 2, WIDE, scheduler=scheduler)
    for name in "abc":
        engine.add(request(name, max_tokens=8))
    while not scheduler.preempted:
        engine.step()
    assert swap.num_used > 0
    engine.abort(scheduler.preempted[0].request_id)
    engine.abort_asked()
    assert swap.num_used == 0
    run(engine, [])


def test_preempted_blocks_that_others_share():
    """With prefix caching the preempted request's blocks may go on to serve others."""
    engine = build(
        12, 2, WIDE, prefix_caching=True, scheduler=Scheduler(SwapToHost(num_blocks=100))
    )
    requests = [request(f"{n}", prompt=[1, 2, 3, 4, n], max_tokens=9) for n in range(5)]
    run(engine, requests)
    right_outputs(engine, requests)
    assert sum(one.num_preemptions for one in requests) > 0


def test_a_pool_of_one_request_gets_through_many():
    engine = build(4, 2, WIDE, scheduler=Scheduler())
    requests = [request(f"{n}") for n in range(10)]
    run(engine, requests)
    right_outputs(engine, requests)


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: Scheduler(max_preemptions=-1), ValueError, "max_preemptions must be at least 0"),
        (lambda: Scheduler(max_preemptions=None), TypeError, "max_preemptions must be a whole"),
        (lambda: Scheduler("swap"), TypeError, "preemption must be Recompute"),
        (lambda: SwapToHost(0), ValueError, "num_blocks must be at least 1"),
        (lambda: SwapToHost(1.5), TypeError, "num_blocks must be a whole number"),
    ],
)
def test_settings(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_swapping_needs_something_to_copy():
    from llmserve_lab.kv_cache import BlockPool

    with pytest.raises(ValueError, match="SwapToHost copies blocks"):
        Scheduler(SwapToHost(4)).bind(BlockPool(4, 2), WIDE)


def test_host_memory_belongs_to_one_scheduler():
    swap = SwapToHost(4)
    build(4, 2, WIDE, scheduler=Scheduler(swap))
    with pytest.raises(ValueError, match="serves another scheduler"):
        build(4, 2, WIDE, scheduler=Scheduler(swap))
