"""Paged attention against dense attention, over a cache whose unwritten slots are NaN."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab.attention import BatchMetadata, Segment, cpu, cpu_kernels, reference
from llmserve_lab.kv_cache import KVShape, PagedKVCache, slots_of
from tests.attention.dense import PagedCase

CPU = torch.device("cpu")
DIM, SCALING = 8, 0.3
WINDOWS = st.none() | st.integers(1, 16)
CAPS = st.none() | st.floats(0.3, 5.0)


def dense(queries, keys, values, start, window=None, softcap=None, sinks=None):
    """Written out: queries (tokens, heads, dim) at positions from `start`; all past keys."""
    groups = queries.shape[1] // keys.shape[1]
    keys, values = (t.repeat_interleave(groups, 1).double() for t in (keys, values))
    output = torch.empty_like(queries, dtype=torch.float64)
    for row in range(len(queries)):
        stop = start + row + 1
        seen = slice(max(0, stop - window) if window else 0, stop)
        scores = torch.einsum("hd,khd->hk", queries[row].double(), keys[seen]) * SCALING
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        weights = scores.exp()
        total = weights.sum(-1) + (0 if sinks is None else sinks.double().exp())
        output[row] = torch.einsum("hk,khd->hd", weights / total[:, None], values[seen])
    return output.float()


@settings(max_examples=100)
@given(
    segments=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=5),
    block_size=st.sampled_from([1, 3, 4, 16]),
    heads=st.sampled_from([(4, 4), (4, 2), (3, 1)]),
    adjacent=st.booleans(),
    window=WINDOWS,
    softcap=CAPS,
    with_sinks=st.booleans(),
    seed=st.integers(0, 1000),
)
@pytest.mark.parametrize("backend", [reference, cpu])
def test_any_mix_of_chunks_and_single_tokens(
    backend, segments, block_size, heads, adjacent, window, softcap, with_sinks, seed
):
    """Segments are (tokens in the past, new tokens); their blocks lie scattered over the pool, or
    one after another. What lies before the window is NaN by then, as if it had been freed."""
    paged_attention = backend.paged_attention
    random = torch.Generator().manual_seed(seed)
    num_heads, num_kv_heads = heads
    asked = {"window": window, "softcap": softcap}
    if with_sinks and backend is reference:
        asked["sinks"] = torch.randn(num_heads, generator=random)
    tables, num_blocks = scattered_tables(segments, block_size, random)
    tables = [sorted(table) for table in tables] if adjacent else tables
    cache = PagedKVCache(KVShape(1, num_kv_heads, DIM), num_blocks, block_size, torch.float32, CPU)
    cache.keys[0][: cache.null_slot] = cache.values[0][: cache.null_slot] = float("nan")
    items, row, queries, keys, values, wanted = [], 0, [], [], [], []
    for (past, new), table in zip(segments, tables, strict=True):
        q, k, v = (
            torch.randn(past + new, count, DIM, generator=random)
            for count in (num_heads, num_kv_heads, num_kv_heads)
        )
        if past:
            before = BatchMetadata(cache, [Segment(0, 0, past, table)], CPU)
            paged_attention(0, q[:past], k[:past], v[:past], before, SCALING)
            freed = slots_of(table, 0, max(0, past + 1 - window) if window else 0, block_size)
            cache.keys[0][freed] = cache.values[0][freed] = float("nan")
        items.append(Segment(row, past, new, table))
        row += new
        queries.append(q[past:])
        keys.append(k[past:])
        values.append(v[past:])
        wanted.append(dense(q[past:], k, v, past, **asked))
    batch = BatchMetadata(cache, items, CPU)
    output = paged_attention(
        0, torch.cat(queries), torch.cat(keys), torch.cat(values), batch, SCALING, **asked
    )
    assert torch.allclose(output, torch.cat(wanted), atol=1e-5)
    assert cache.keys[0][cache.null_slot :].count_nonzero() == 0


def scattered_tables(segments, block_size, random):
    """Block tables in random order, over a pool with a spare block for each."""
    counts = [-(-(past + new) // block_size) for past, new in segments]
    num_blocks = sum(counts) + len(counts)
    order = torch.randperm(num_blocks, generator=random).tolist()
    return [[order.pop() for _ in range(count)] for count in counts], num_blocks


def test_shapes_of_the_metadata():
    cache = PagedKVCache(KVShape(1, 1, DIM), 8, 4, torch.float32, CPU)
    segments = [Segment(0, 5, 1, [2, 0]), Segment(1, 0, 3, [7]), Segment(4, 0, 1, [1])]
    batch = BatchMetadata(cache, segments, CPU)
    assert batch.slot_mapping.tolist() == [1, 28, 29, 30, 4]
    assert batch.single_rows.tolist() == [0, 4]
    null = cache.null_slot
    slots, mask = batch.single_reads()
    assert slots.tolist() == [[8, 9, 10, 11, 0, 1], [4, *[null] * 5]]
    assert mask[:, 0, 0].sum(-1).tolist() == [6, 1]
    ((slots, mask),) = batch.chunk_reads()
    assert slots == slice(28, 31)
    assert mask.tolist() == torch.ones(3, 3).tril().bool().tolist()


def test_a_window_reads_no_more_than_it_shows():
    cache = PagedKVCache(KVShape(1, 1, DIM), 8, 4, torch.float32, CPU)
    segments = [Segment(0, 5, 1, [2, 0]), Segment(1, 4, 3, [7, 1]), Segment(4, 0, 1, [1])]
    batch = BatchMetadata(cache, segments, CPU)
    slots, mask = batch.single_reads(2)
    assert slots.tolist() == [[0, 1], [4, cache.null_slot]]
    assert mask[:, 0, 0].tolist() == [[True, True], [True, False]]
    ((slots, mask),) = batch.chunk_reads(2)
    assert slots.tolist() == [31, 4, 5, 6]  # positions 3 to 6
    assert mask.int().tolist() == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert batch.single_reads(2) is batch.single_reads(2)
    assert batch.single_reads() is not batch.single_reads(2)


def test_adjacent_blocks_are_read_in_place_and_scattered_ones_by_slot():
    cache = PagedKVCache(KVShape(1, 1, DIM), 8, 4, torch.float32, CPU)
    segments = [Segment(0, 0, 6, [3, 4]), Segment(6, 0, 6, [4, 3])]
    run, scattered = BatchMetadata(cache, segments, CPU).chunk_reads()
    assert run.slots == slice(12, 18)
    assert scattered.slots.tolist() == [16, 17, 18, 19, 12, 13]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_dtype_is_kept(dtype):
    cache = PagedKVCache(KVShape(1, 1, DIM), 2, 4, dtype, CPU)
    batch = BatchMetadata(cache, [Segment(0, 0, 3, [1])], CPU)
    ones = torch.ones(3, 1, DIM, dtype=dtype)
    for asked in ({}, {"softcap": 2.0}, {"sinks": ones[0, :, 0]}):
        output = reference.paged_attention(0, ones, ones, ones, batch, SCALING, **asked)
        assert output.dtype is dtype


@pytest.mark.parametrize("window", [None, 3])
def test_the_kernel_in_bfloat16_is_exact_up_to_one_rounding(window):
    """Sums are float32: only the output is rounded, to 8 bits."""
    case = PagedCase([(9, 1), (0, 1), (4, 1), (16, 1)], (4, 2), DIM, 4, torch.bfloat16)
    found = case.run(cpu.paged_attention, window=window)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), case.wanted(window=window), rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_is_compiled_before_the_first_step(dtype):
    cpu.prepare(dtype)
    compiled = set(cpu_kernels.decode.signatures)
    cache = PagedKVCache(KVShape(1, 2, DIM), 2, 4, dtype, CPU)
    batch = BatchMetadata(cache, [Segment(0, 0, 1, [1])], CPU)
    queries, keys = torch.ones(1, 4, DIM, dtype=dtype), torch.ones(1, 2, DIM, dtype=dtype)
    for asked in ({}, {"window": 1}, {"softcap": 2.0}):
        cpu.paged_attention(0, queries, keys, keys, batch, SCALING, **asked)
    assert set(cpu_kernels.decode.signatures) == compiled
