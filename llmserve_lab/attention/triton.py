"""Attention in our own Triton kernels, for CUDA GPUs from the T4 on: the cache is read through the
block table, once for all the query heads of a KV head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from llmserve_lab.attention.backend import AMPERE
from llmserve_lab.attention.metadata import BatchMetadata
from llmserve_lab.attention.reference import attend_chunks
from llmserve_lab.attention.spans import Spans, chunk_spans, single_spans
from llmserve_lab.attention.triton_kernels import attend, merge
from llmserve_lab.kv_cache import PagedKVCache

FEWEST_DIMS = 16  # the smallest inner side of a matrix product in Triton
PREFILL_LANES = 64  # rows (token, head) of a prefill tile
WIDE_DIM = 128  # above it, half as many keys at once fit into a core's shared memory
PROGRAMS = 512  # contexts are split until about so many run: a few for each core of a large GPU
FEWEST_KEYS = 256  # of a split; shorter ones cost more to merge than they gain


def paged_attention(
    layer: int,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: BatchMetadata,
    scaling: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """As `reference.paged_attention`, in float16, bfloat16 or float32."""
    cache = batch.cache
    assert isinstance(cache, PagedKVCache)
    cache.write(layer, batch.slot_mapping, keys, values)
    queries = queries if queries.stride(-1) == 1 else queries.contiguous()
    output = queries.new_empty(queries.shape)
    kinds = [single_spans] if batch.singles else []
    if batch.chunks and has_tensor_cores(queries):
        kinds.append(chunk_spans)
    elif batch.chunks:  # without them cuBLAS computes prefill faster than Triton
        attend_chunks(layer, queries, batch, scaling, output, window, softcap)
    for kind in kinds:
        attend_spans(layer, queries, cache, batch.once(kind), scaling, output, window, softcap)
    return output


def prepare(dtype: torch.dtype) -> None:
    """Nothing: each kernel is compiled by the first step that needs it."""


def has_tensor_cores(queries: torch.Tensor) -> bool:
    """Whether Triton multiplies these on tensor cores: it does in 16 bits, and from Ampere on (for
    the T4's it has no instructions). True in the interpreter, to try what a GPU would run."""
    if queries.device.type != "cuda":
        return True
    wide = queries.element_size() > 2
    return not wide and torch.cuda.get_device_capability(queries.device) >= AMPERE


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a launch is cut up. tokens: query tokens of a tile; lanes: of a group of query heads, a
    power of two; step: keys read at once; splits: parts of a context, each its own program."""

    tokens: int
    lanes: int
    step: int
    splits: int

    @classmethod
    def of(
        cls, queries: torch.Tensor, num_kv_heads: int, spans: Spans, num_keys: int, fast: bool
    ) -> Tiling:
        """num_keys: as many as one span may read; a bound, so that nothing is asked of the GPU.
        fast: on tensor cores, where more keys at once fit into registers."""
        dim, lanes = queries.shape[2], power_of_two(queries.shape[1] // num_kv_heads)
        tokens = 1 if spans.longest == 1 else max(1, PREFILL_LANES // lanes)
        programs = len(spans.rows) * -(-spans.longest // tokens) * num_kv_heads
        splits = min(-(-PROGRAMS // programs), -(-num_keys // FEWEST_KEYS))
        narrow = dim <= (WIDE_DIM if fast else WIDE_DIM // 2)
        return cls(tokens, lanes, (64 if fast else 32) // (1 if narrow else 2), splits)


def attend_spans(
    layer: int,
    queries: torch.Tensor,
    cache: PagedKVCache,
    spans: Spans,
    scaling: float,
    output: torch.Tensor,
    window: int | None,
    softcap: float | None,
) -> None:
    """Fill the rows of `output` (tokens, heads, head dim) that belong to the spans."""
    keys, (_, heads, dim) = cache.keys[layer], queries.shape
    num_keys = min(spans.tables.shape[1] * cache.block_size, window or 2**62)
    fast = has_tensor_cores(queries)
    tiling = Tiling.of(queries, keys.shape[1], spans, num_keys, fast)
    cells = len(spans.rows) * spans.longest
    partial = mass = output  # not touched where nothing is split
    if tiling.splits > 1:
        partial = output.new_empty((cells, heads, tiling.splits, dim), dtype=torch.float32)
        mass = output.new_empty((cells, heads, tiling.splits), dtype=torch.float32)
    common: dict[str, Any] = {
        "HEADS": heads, "DIM": dim, "DIM_LANES": max(FEWEST_DIMS, power_of_two(dim)),
        "SPLITS": tiling.splits, "SINGLE": spans.longest == 1,
    }  # fmt: skip
    grid = len(spans.rows), -(-spans.longest // tiling.tokens), keys.shape[1] * tiling.splits
    attend[grid](
        queries, keys, cache.values[layer], output, partial, mass,
        spans.rows, spans.counts, spans.contexts, spans.tables,
        spans.tables.shape[1], spans.longest, scaling, window or 0, softcap or 0.0,
        queries.stride(0), queries.stride(1), keys.stride(0), keys.stride(1),
        GROUP=heads // keys.shape[1], GROUP_LANES=tiling.lanes, TOKENS=tiling.tokens,
        BLOCK=cache.block_size, STEP=tiling.step, WINDOWED=window is not None,
        CAPPED=softcap is not None, **common,
    )  # fmt: skip
    if tiling.splits > 1:
        merge[cells, heads](
            partial, mass, output, spans.rows, spans.counts, spans.longest,
            SPLIT_LANES=power_of_two(tiling.splits), **common,
        )  # fmt: skip


def power_of_two(number: int) -> int:
    """The smallest that is not below `number`."""
    return 1 << (number - 1).bit_length()
