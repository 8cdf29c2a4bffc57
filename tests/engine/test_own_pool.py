"""A block pool that a learner writes: it serves real requests, and its faults are named."""

import pytest

from llmserve_lab import LLM, SamplingParams, Scheduler, SchedulerError
from llmserve_lab.engine.preemption import SwapToHost
from llmserve_lab.kv_cache import BlockAllocator, BlockPool, OutOfBlocksError
from tests.engine.reference import greedy_tokens, ids, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = [list(range(start, start + length)) for start, length in ((1, 9), (20, 4), (30, 17))]


class MyPool(BlockAllocator):
    """The five methods as a learner would write them first."""

    def __init__(self, num_blocks, block_size):
        super().__init__(num_blocks, block_size)
        self.free = list(range(num_blocks))
        self.count = [0] * num_blocks

    @property
    def num_free(self):
        return len(self.free)

    def num_refs(self, block):
        return self.count[block]

    def allocate(self, count, after=None):
        if count > len(self.free):
            raise OutOfBlocksError(f"{count} wanted")
        taken = [self.free.pop() for _ in range(count)]
        for block in taken:
            self.count[block] = 1
        return taken

    def share(self, blocks):
        for block in blocks:
            if self.count[block] == 0:
                self.free.remove(block)
            self.count[block] += 1

    def release(self, blocks):
        for block in blocks:
            if self.count[block] == 0:
                raise ValueError(f"block {block} is free already")
            self.count[block] -= 1
            if self.count[block] == 0:
                self.free.append(block)


@pytest.mark.parametrize(
    ("num_blocks", "scheduler"),
    [(64, Scheduler), (10, Scheduler), (10, lambda: Scheduler(SwapToHost(num_blocks=8)))],
    ids=["roomy", "preempted", "swapped"],
)
def test_it_serves_real_requests(make_llm, tiny, num_blocks, scheduler):
    pool = MyPool(num_blocks, 4)
    llm = make_llm(num_blocks=None, block_size=16, block_pool=pool, scheduler=scheduler())
    assert (llm.pool, llm.capacity.num_blocks, llm.capacity.block_size) == (pool, num_blocks, 4)
    outputs = llm.generate(ids(*PROMPTS), GREEDY)
    assert tokens_of(outputs) == [greedy_tokens(tiny.model, prompt, 12) for prompt in PROMPTS]
    preempted = sum(output.metrics.num_preemptions for output in outputs)
    assert (preempted > 0) == (num_blocks == 10)


def test_continuations_share_its_blocks(make_llm):
    params = SamplingParams(n=3, seed=20, max_tokens=6, ignore_eos=True)
    llm = make_llm(num_blocks=None, block_pool=MyPool(32, 4), trace=True)
    outputs = llm.generate(ids(PROMPTS[0]), params)[0].outputs
    assert max(llm.trace[0].block_refs) == 3
    for index, output in enumerate(outputs):
        alone = make_llm().generate(ids(PROMPTS[0]), params.continuation(index))
        assert (output.token_ids,) == tuple(tokens_of(alone))


def test_the_librarys_own_pool_may_come_along(make_llm):
    pool = BlockPool(32, 4, enable_prefix_caching=True)
    llm = make_llm(num_blocks=None, block_pool=pool)
    first, second = (llm.generate(ids(PROMPTS[2]), GREEDY)[0] for _ in range(2))
    assert second.metrics.num_hit_tokens == 16
    assert first.outputs[0].token_ids == second.outputs[0].token_ids


class HandsOutTwice(MyPool):
    """Forgets to take a block off the free list."""

    def allocate(self, count, after=None):
        taken = self.free[:count]
        for block in taken:
            self.count[block] = 1
        return taken


class CountsWrong(MyPool):
    """Takes blocks, but counts no reference."""

    def allocate(self, count, after=None):
        taken = super().allocate(count)
        for block in taken:
            self.count[block] = 0
        return taken


class OutOfRange(MyPool):
    """Numbers its blocks from 1."""

    def allocate(self, count, after=None):
        return [block + 1 for block in super().allocate(count)]


class TooFew(MyPool):
    def allocate(self, count, after=None):
        return super().allocate(max(0, count - 1))


FAULTS = {
    HandsOutTwice: r"Block 0 is held by '0' and '1' and '2', but was handed out 1x",
    CountsWrong: r"'0' holds block 63, which is free",
    OutOfRange: r"'0' holds block 64, but the pool has blocks 0 to 63",
    TooFew: r"'0' lacks blocks for its first 9 tokens",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_named(tiny, kind):
    llm = LLM(tiny, block_pool=kind(64, 4))
    with pytest.raises(SchedulerError, match=FAULTS[kind]):
        llm.generate(ids(*PROMPTS), GREEDY)


class NeverFrees(MyPool):
    def release(self, blocks):
        pass


def test_blocks_that_are_never_freed_are_found_in_the_next_step(tiny):
    llm = LLM(tiny, block_pool=NeverFrees(64, 4))
    with pytest.raises(SchedulerError, match=r"No request holds block \d+ \(\d+ in all\)"):
        llm.generate(ids(*PROMPTS), [SamplingParams(max_tokens=n) for n in (1, 9, 9)])


def test_the_default_integrity_check_notices():
    pool = MyPool(4, 2)
    pool.check_integrity()
    pool.free.pop()
    with pytest.raises(AssertionError, match="3 free, but 4 unheld"):
        pool.check_integrity()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"block_pool": MyPool}, TypeError, "must be a BlockAllocator object"),
        ({"block_pool": MyPool(8, 4), "num_blocks": 9}, ValueError, "num_blocks is 9, but"),
        ({"block_pool": MyPool(8, 4), "block_size": 8}, ValueError, "block_size is 8, but"),
        (
            {"block_pool": MyPool(8, 4), "enable_prefix_caching": True},
            ValueError,
            "enable_prefix_caching is True",
        ),
    ],
    ids=["class", "num_blocks", "block_size", "prefix caching"],
)
def test_a_pool_that_does_not_fit_is_refused(tiny, settings, error, message):
    with pytest.raises(error, match=message):
        LLM(tiny, **settings)


def test_a_used_pool_is_refused(tiny):
    pool = MyPool(8, 4)
    pool.allocate(3)
    with pytest.raises(ValueError, match="must be unused: 5 of its 8 blocks are free"):
        LLM(tiny, block_pool=pool)


def test_a_pool_without_the_five_methods_cannot_be_made():
    class Half(BlockAllocator):
        def allocate(self, count, after=None):
            return []

    with pytest.raises(TypeError, match="abstract"):
        Half(4, 4)
