"""Segments of a batch as tensors, which is how GPU kernels take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from llmserve_lab.attention.metadata import BatchMetadata, Segment
    from llmserve_lab.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class Spans:
    """rows, counts, contexts: (spans,) int64, of each its first row in the batch, its tokens, and
    the tokens up to its last one, that included. tables: (spans, width) int64, block tables padded
    with the null block; `width` blocks hold every context. longest: tokens of the longest span."""

    rows: torch.Tensor
    counts: torch.Tensor
    contexts: torch.Tensor
    tables: torch.Tensor
    longest: int

    @classmethod
    def of(cls, segments: list[Segment], cache: KVCache, device: torch.device) -> Spans:
        """One transfer for the three numbers of each segment, one for the tables."""
        import torch

        null_block = cache.null_slot // cache.block_size
        width = max(len(s.block_table) for s in segments)
        tables = [s.block_table + [null_block] * (width - len(s.block_table)) for s in segments]
        facts = [[s.row, s.num_tokens, s.context] for s in segments]
        numbers = torch.tensor(facts, dtype=torch.int64, device=device).T.contiguous()
        rows, counts, contexts = numbers.unbind()
        padded = torch.tensor(tables, dtype=torch.int64, device=device)
        longest = max(s.num_tokens for s in segments)
        return cls(rows, counts, contexts, padded, longest)


def single_spans(batch: BatchMetadata) -> Spans:
    """The batch's single tokens (decode), from the tensors that it keeps for all layers."""
    contexts = batch.single_contexts
    return Spans(batch.single_rows, contexts, contexts, batch.single_tables, longest=1)


def chunk_spans(batch: BatchMetadata) -> Spans:
    """The batch's prefill chunks."""
    return Spans.of(batch.chunks, batch.cache, batch.device)
