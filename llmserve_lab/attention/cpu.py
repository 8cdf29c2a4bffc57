"""Attention on a CPU: for decode, a Numba kernel that reads keys and values through the block
table, without gathering them first; for prefill, the reference's way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from llmserve_lab.attention.bfloat16 import array_of
from llmserve_lab.attention.cpu_kernels import NO_CAP, NO_WINDOW, decode
from llmserve_lab.attention.metadata import BatchMetadata
from llmserve_lab.attention.reference import attend_chunks
from llmserve_lab.kv_cache import PagedKVCache

if TYPE_CHECKING:
    import torch


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
    """As `reference.paged_attention`, in float32 or bfloat16; sums are float32."""
    batch.cache.write(layer, batch.slot_mapping, keys, values)
    output = queries.new_empty(queries.shape)
    if batch.singles:
        output[batch.single_rows] = _singles(layer, queries, batch, scaling, window, softcap)
    attend_chunks(layer, queries, batch, scaling, output, window, softcap)
    return output


def prepare() -> None:
    """Compile the kernels, or load what an earlier process compiled: seconds that would otherwise
    be part of the first decode step."""
    rows = numpy.zeros((1, 1, 1), numpy.float32)
    table, contexts = numpy.zeros((1, 1), numpy.int64), numpy.ones(1, numpy.int64)
    for pool in (rows, rows.astype(numpy.uint16)):
        decode(rows, pool, pool, table, contexts, 1, 1.0, 1, NO_CAP, numpy.empty_like(rows))


def _singles(
    layer: int,
    queries: torch.Tensor,
    batch: BatchMetadata,
    scaling: float,
    window: int | None,
    softcap: float | None,
) -> torch.Tensor:
    """One query token per request. Returns (singles, heads, head dim)."""
    import torch

    cache, rows = batch.cache, queries[batch.single_rows].float()
    assert isinstance(cache, PagedKVCache)
    output = torch.empty_like(rows)
    decode(
        rows.numpy(),
        array_of(cache.keys[layer]),
        array_of(cache.values[layer]),
        batch.single_tables.numpy(),
        batch.single_contexts.numpy(),
        cache.block_size,
        scaling,
        window or NO_WINDOW,
        softcap or NO_CAP,
        output.numpy(),
    )
    return output.to(queries.dtype)
