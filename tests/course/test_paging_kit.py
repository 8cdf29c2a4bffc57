"""What chapter 18 measures with: pools that count or scatter, pieces of memory, a median."""

import pytest

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.course.counting_pool import CountingPool
from llmserve_lab.course.median_time import median_ms
from llmserve_lab.course.read_runs import read_runs
from llmserve_lab.course.scattered_pool import ScatteredPool
from llmserve_lab.kv_cache import OutOfBlocksError
from tests.engine.reference import greedy_tokens, ids, tokens_of

PROMPTS = [list(range(start, start + length)) for start, length in ((1, 9), (20, 4), (30, 17))]
GREEDY = SamplingParams(temperature=0, max_tokens=12)


@pytest.mark.parametrize("num_blocks", [64, 10])
def test_blocks_at_random_change_nothing(make_llm, tiny, num_blocks):
    llm = make_llm(num_blocks=None, block_pool=ScatteredPool(num_blocks, 4), trace=True)
    outputs = llm.generate(ids(*PROMPTS), GREEDY)
    assert tokens_of(outputs) == [greedy_tokens(tiny.model, prompt, 12) for prompt in PROMPTS]
    assert (llm.metrics.preemptions > 0) == (num_blocks == 10)


def test_the_same_seed_scatters_alike_and_another_does_not():
    first, again, other = (ScatteredPool(40, 4, seed).allocate(10) for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 10 and first != sorted(first)


def test_a_scattered_pool_counts_like_any_other():
    pool = ScatteredPool(3, 4)
    (block,) = pool.allocate(1)
    with pytest.raises(OutOfBlocksError, match=r"3 blocks wanted, 2 free"):
        pool.allocate(3)
    assert pool.num_free == 2
    pool.share([block])
    pool.release([block])
    assert pool.num_refs(block) == 1
    pool.release([block])
    with pytest.raises(ValueError, match=f"Block {block} is free already"):
        pool.release([block])
    pool.share([block])
    assert pool.num_free == 2
    pool.check_integrity()


def test_a_counting_pool_counts_what_a_fork_copies(make_llm):
    """10 tokens in blocks of 4, three continuations: two copies of the third block."""
    pool = CountingPool(32, 4)
    llm = make_llm(num_blocks=None, block_pool=pool)
    params = SamplingParams(n=3, seed=1, max_tokens=2, ignore_eos=True)
    llm.generate(ids(list(range(1, 11))), params)
    assert (pool.num_taken, pool.num_copied) == (3 + 2, 2)


def test_a_counting_pool_counts_what_is_hashed(make_llm):
    """9 tokens in blocks of 4: the first run looks up one block in vain and publishes two, the
    second still knows the first and looks up the other."""
    pool = CountingPool(32, 4, enable_prefix_caching=True)
    llm = make_llm(num_blocks=None, block_pool=pool)
    for expected in (1 + 2, 4):
        llm.generate(ids(PROMPTS[0]), SamplingParams(max_tokens=1))
        assert pool.num_hashed == expected
    assert llm.metrics.prefix_hits == 8


@pytest.mark.parametrize(
    ("table", "runs"),
    [([], 0), ([5], 1), ([0, 1, 2], 1), ([2, 1, 0], 3), ([0, 1, 5, 6, 3], 3), ((4, 5, 4), 2)],
)
def test_pieces_of_memory(table, runs):
    assert read_runs(table) == runs


def test_the_median_leaves_the_first_call_out():
    times = iter([0, 4, 10, 11, 20, 22])
    calls = []
    assert median_ms(lambda: calls.append(1), rounds=3, clock=lambda: next(times)) == 2000
    assert len(calls) == 4


def test_an_engine_on_each_pool_gives_all_back(tiny):
    for pool in (ScatteredPool(16, 4), CountingPool(16, 4)):
        LLM(tiny, block_pool=pool).generate(ids(PROMPTS[0]), GREEDY)
        assert pool.num_free == 16
