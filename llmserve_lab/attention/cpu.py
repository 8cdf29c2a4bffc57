"""Attention on a CPU: for decode, a Numba kernel that reads keys and values through the block
table, without gathering them first; for prefill, the reference's way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from llmserve_lab.attention.bfloat16 import array_of, number
from llmserve_lab.attention.metadata import BatchMetadata
from llmserve_lab.attention.numba_cache import kernel
from llmserve_lab.attention.reference import attend_chunks
from llmserve_lab.kv_cache import PagedKVCache

if TYPE_CHECKING:
    import torch

NO_CAP = 0.0
NO_WINDOW = 2**62  # tokens; more than any context


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
    """Compile the kernel, or load what an earlier process compiled: seconds that would otherwise
    be part of the first decode step."""
    rows = numpy.zeros((1, 1, 1), numpy.float32)
    table, contexts = numpy.zeros((1, 1), numpy.int64), numpy.ones(1, numpy.int64)
    for pool in (rows, rows.astype(numpy.uint16)):
        _decode(rows, pool, pool, table, contexts, 1, 1.0, 1, NO_CAP, numpy.empty_like(rows))


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
    _decode(
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


@kernel
def _decode(
    queries: Any,
    keys: Any,
    values: Any,
    tables: Any,
    contexts: Any,
    block_size: int,
    scaling: float,
    window: int,
    softcap: float,
    output: Any,
) -> None:  # pragma: no cover (compiled)
    """queries, output: (rows, heads, dim), float32; keys, values: (slots, KV heads, dim), float32
    or the bits of a bfloat16; tables: (rows, blocks); contexts: (rows,), int64. Keys and values are
    read once, in the order in which they lie: all heads of a token, then the next token."""
    longest = tables.shape[1] * block_size
    slots = numpy.empty(longest, numpy.int64)
    weights = numpy.empty((queries.shape[1], longest), numpy.float32)
    for row in range(queries.shape[0]):
        count = min(window, contexts[row])
        _locate(tables[row], contexts[row] - count, block_size, slots[:count])
        _score(queries[row], keys, slots[:count], scaling, weights)
        if softcap != NO_CAP:
            _cap(weights, count, softcap)
        _normalise(weights, count)
        _mix(weights, values, slots[:count], output[row])


@kernel
def _locate(
    table: Any, first: int, block_size: int, slots: Any
) -> None:  # pragma: no cover (compiled)
    """slots[t] = where token first + t lies"""
    for t in range(slots.shape[0]):
        token = first + t
        slots[t] = table[token // block_size] * block_size + token % block_size


@kernel
def _score(
    heads: Any, keys: Any, slots: Any, scaling: float, weights: Any
) -> None:  # pragma: no cover (compiled)
    """weights[h, t] = scaling * heads[h] . the key of token t for that head"""
    group = heads.shape[0] // keys.shape[1]
    for t in range(slots.shape[0]):
        slot = slots[t]
        for h in range(heads.shape[0]):
            total = numpy.float32(0)
            for d in range(heads.shape[1]):
                total += heads[h, d] * number(keys[slot, h // group, d])
            weights[h, t] = total * numpy.float32(scaling)


@kernel
def _cap(weights: Any, count: int, softcap: float) -> None:  # pragma: no cover (compiled)
    """weights[g, t] = softcap * tanh(weights[g, t] / softcap)"""
    cap = numpy.float32(softcap)
    for g in range(weights.shape[0]):
        for t in range(count):
            weights[g, t] = cap * numpy.tanh(weights[g, t] / cap)


@kernel
def _normalise(weights: Any, count: int) -> None:  # pragma: no cover (compiled)
    """Softmax of each row's first `count` values."""
    for g in range(weights.shape[0]):
        top = weights[g, 0]
        for t in range(1, count):
            top = max(top, weights[g, t])
        total = numpy.float32(0)
        for t in range(count):
            weights[g, t] = numpy.exp(weights[g, t] - top)
            total += weights[g, t]
        for t in range(count):
            weights[g, t] /= total


@kernel
def _mix(weights: Any, values: Any, slots: Any, result: Any) -> None:  # pragma: no cover (compiled)
    """result[h] = sum of weights[h, t] * the value of token t for that head"""
    group = result.shape[0] // values.shape[1]
    result[:] = numpy.float32(0)
    for t in range(slots.shape[0]):
        slot = slots[t]
        for h in range(result.shape[0]):
            weight = weights[h, t]
            for d in range(result.shape[1]):
                result[h, d] += weight * number(values[slot, h // group, d])
