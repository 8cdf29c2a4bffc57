"""Attention on a CPU: for decode, a Numba kernel that reads keys and values through the block
table, without gathering them first; for prefill, the reference's way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from llmserve_lab.attention.metadata import BatchMetadata
from llmserve_lab.attention.numba_cache import kernel
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
) -> torch.Tensor:
    """As `reference.paged_attention`, in float32."""
    batch.cache.write(layer, batch.slot_mapping, keys, values)
    output = queries.new_empty(queries.shape)
    if batch.singles:
        output[batch.single_rows] = _singles(layer, queries, batch, scaling)
    attend_chunks(layer, queries, batch, scaling, output)
    return output


def prepare() -> None:
    """Compile the kernel, or load what an earlier process compiled: seconds that would otherwise
    be part of the first decode step."""
    rows = numpy.zeros((1, 1, 1), numpy.float32)
    table, contexts = numpy.zeros((1, 1), numpy.int64), numpy.ones(1, numpy.int64)
    _decode(rows, rows, rows, table, contexts, 1, 1.0, numpy.empty_like(rows))


def _singles(
    layer: int, queries: torch.Tensor, batch: BatchMetadata, scaling: float
) -> torch.Tensor:
    """One query token per request. Returns (singles, heads, head dim)."""
    import torch

    cache, rows = batch.cache, queries[batch.single_rows]
    assert isinstance(cache, PagedKVCache)
    output = torch.empty_like(rows)
    _decode(
        rows.numpy(),
        cache.keys[layer].numpy(),
        cache.values[layer].numpy(),
        batch.single_tables.numpy(),
        batch.single_contexts.numpy(),
        cache.block_size,
        scaling,
        output.numpy(),
    )
    return output


@kernel
def _decode(
    queries: Any,
    keys: Any,
    values: Any,
    tables: Any,
    contexts: Any,
    block_size: int,
    scaling: float,
    output: Any,
) -> None:  # pragma: no cover (compiled)
    """queries, output: (rows, heads, dim); keys, values: (slots, KV heads, dim), all float32;
    tables: (rows, blocks); contexts: (rows,), int64. Each key is read once per group of heads."""
    group = queries.shape[1] // keys.shape[1]
    weights = numpy.empty((group, tables.shape[1] * block_size), numpy.float32)
    for row in range(queries.shape[0]):
        for kv_head in range(keys.shape[1]):
            heads = queries[row, kv_head * group : (kv_head + 1) * group]
            _score(heads, keys, kv_head, tables[row], contexts[row], block_size, scaling, weights)
            _normalise(weights, contexts[row])
            result = output[row, kv_head * group : (kv_head + 1) * group]
            _mix(weights, values, kv_head, tables[row], contexts[row], block_size, result)


@kernel
def _score(
    heads: Any,
    keys: Any,
    kv_head: int,
    table: Any,
    context: int,
    block_size: int,
    scaling: float,
    weights: Any,
) -> None:  # pragma: no cover (compiled)
    """weights[g, t] = scaling * heads[g] . key t"""
    for token in range(context):
        slot = table[token // block_size] * block_size + token % block_size
        for g in range(heads.shape[0]):
            total = numpy.float32(0)
            for d in range(heads.shape[1]):
                total += heads[g, d] * keys[slot, kv_head, d]
            weights[g, token] = total * numpy.float32(scaling)


@kernel
def _normalise(weights: Any, context: int) -> None:  # pragma: no cover (compiled)
    """Softmax of each row's first `context` values."""
    for g in range(weights.shape[0]):
        top = weights[g, 0]
        for token in range(1, context):
            top = max(top, weights[g, token])
        total = numpy.float32(0)
        for token in range(context):
            weights[g, token] = numpy.exp(weights[g, token] - top)
            total += weights[g, token]
        for token in range(context):
            weights[g, token] /= total


@kernel
def _mix(
    weights: Any,
    values: Any,
    kv_head: int,
    table: Any,
    context: int,
    block_size: int,
    result: Any,
) -> None:  # pragma: no cover (compiled)
    """result[g] = sum of weights[g, t] * value t"""
    result[:] = numpy.float32(0)
    for token in range(context):
        slot = table[token // block_size] * block_size + token % block_size
        for g in range(result.shape[0]):
            for d in range(result.shape[1]):
                result[g, d] += weights[g, token] * values[slot, kv_head, d]
