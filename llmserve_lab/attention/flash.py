"""Attention by torch's FlashAttention-2, which reads a paged cache in pages of 256 tokens (Dao
2023); for CUDA GPUs from compute capability 8.0 on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.nn.attention.varlen import varlen_attn

from llmserve_lab.attention.metadata import BatchMetadata
from llmserve_lab.attention.spans import Spans
from llmserve_lab.kv_cache import PagedKVCache

if TYPE_CHECKING:
    import torch

NO_BOUND = -1  # of a window, on one side


def paged_attention(
    layer: int,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: BatchMetadata,
    scaling: float,
    window: int | None = None,
) -> torch.Tensor:
    """As `reference.paged_attention`, in float16 or bfloat16. The batch's segments lie in its rows
    one after another, without a gap."""
    cache, args = batch.cache, batch.once(Arguments.of)
    assert isinstance(cache, PagedKVCache)
    cache.write(layer, batch.slot_mapping, keys, values)
    alone = args.max_q == 1 and window is None  # no mask: it may pack the heads of a group
    pages = (-1, cache.block_size)
    attended = varlen_attn(
        queries.contiguous(),
        cache.keys[layer].unflatten(0, pages),
        cache.values[layer].unflatten(0, pages),
        args.query_ends,
        args.key_ends,
        args.max_q,
        args.max_k,
        scale=scaling,
        window_size=(NO_BOUND if window is None else window - 1, NO_BOUND if alone else 0),
        enable_gqa=queries.shape[1] != keys.shape[1],
        seqused_k=args.contexts,
        block_table=args.tables,
        num_splits=1,  # more write wrong rows over a paged cache: pytorch/pytorch issue 194167
    )
    assert not isinstance(attended, tuple)
    return attended


def prepare(dtype: torch.dtype) -> None:
    """Nothing: the kernels come with torch."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A batch as FlashAttention takes it; all tensors int32. query_ends: (segments + 1,), rows
    before each segment, and in all. contexts: (segments,), keys of each. tables: (segments, width),
    pages of each. key_ends: (segments + 1,), unused where there are tables, but asked for."""

    query_ends: torch.Tensor
    key_ends: torch.Tensor
    contexts: torch.Tensor
    tables: torch.Tensor
    max_q: int
    max_k: int

    @classmethod
    def of(cls, batch: BatchMetadata) -> Arguments:
        import torch

        spans = Spans.of(batch.segments, batch.cache, batch.device)
        width = spans.tables.shape[1] * batch.cache.block_size
        ends = torch.arange(len(spans.rows) + 1, dtype=torch.int32, device=batch.device)
        query_ends = torch.zeros_like(ends)
        query_ends[1:] = spans.counts.cumsum(0)
        max_k = max(segment.context for segment in batch.segments)
        contexts, tables = spans.contexts.int(), spans.tables.int()
        return cls(query_ends, ends * width, contexts, tables, spans.longest, max_k)
