"""Attention on a CPU: for decode, a Numba kernel that reads keys and values through the block
table, without gathering them first, in as many threads as torch uses; for prefill, the reference's
way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from llmserve_lab.attention import team
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
    if batch.is_decode:
        return _singles(layer, queries, batch, scaling, window, softcap)
    output = queries.new_empty(queries.shape)
    if batch.singles:
        rows = batch.single_rows
        output[rows] = _singles(layer, queries[rows], batch, scaling, window, softcap)
    attend_chunks(layer, queries, batch, scaling, output, window, softcap)
    return output


def prepare(dtype: torch.dtype) -> None:
    """Compile the kernels, or load what an earlier process compiled: seconds that would otherwise
    be part of the first decode step."""
    import torch

    rows = numpy.zeros((1, 1, 1), numpy.float32)
    table, contexts = numpy.zeros((1, 1), numpy.int64), numpy.ones(1, numpy.int64)
    pool = array_of(torch.zeros((1, 1, 1), dtype=dtype))
    decode(rows, pool, pool, table, contexts, 1, 1.0, 1, NO_CAP, numpy.empty_like(rows))
    if team.threads() > 1:
        from llmserve_lab.attention import decode_shares

        decode_shares.function_for(dtype)


def _singles(
    layer: int,
    queries: torch.Tensor,
    batch: BatchMetadata,
    scaling: float,
    window: int | None,
    softcap: float | None,
) -> torch.Tensor:
    """queries: (singles, heads, head dim), one token per request. Returns the same shape."""
    import torch

    cache, rows = batch.cache, queries.float().contiguous()
    assert isinstance(cache, PagedKVCache)
    output = torch.empty_like(rows)
    pools = cache.keys[layer], cache.values[layer]
    tables, contexts = batch.single_tables, batch.single_contexts
    options = cache.block_size, scaling, window or NO_WINDOW, softcap or NO_CAP
    starts = batch.once(_starts)
    if starts is None:
        arrays = (rows.numpy(), *map(array_of, pools), tables.numpy(), contexts.numpy())
        decode(*arrays, *options, output.numpy())
    else:
        from llmserve_lab.attention import decode_shares

        decode_shares.run(rows, *pools, tables, contexts, starts, *options, output)
    return output.to(queries.dtype)


def _starts(batch: BatchMetadata) -> torch.Tensor | None:
    """Where the share of each of torch's threads begins; None where there is one thread only."""
    shares = min(team.threads(), len(batch.singles))
    if shares < 2:
        return None
    import torch

    from llmserve_lab.attention import decode_shares

    contexts = [segment.context for segment in batch.singles]
    return torch.tensor(decode_shares.bounds(contexts, shares))
