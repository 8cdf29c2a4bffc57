"""What attention must know about a batch: which tokens belong to whom, and where their KV lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from llmserve_lab.kv_cache import KVCache, slots_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Segment:
    """One request's tokens in a batch: positions `start` to `start + num_tokens - 1`, which lie at
    rows `row` to `row + num_tokens - 1` of the flattened batch."""

    row: int
    start: int
    num_tokens: int
    block_table: list[int]

    @property
    def context(self) -> int:
        """Tokens that the last one attends to, itself included."""
        return self.start + self.num_tokens


class BatchMetadata:
    """A flattened batch over one cache. Single-token segments (decode) are read together, padded to
    the longest; the others (prefill chunks) one by one."""

    def __init__(self, cache: KVCache, segments: list[Segment], device: torch.device) -> None:
        self.cache, self.segments, self.device = cache, segments, device
        self.chunks = [s for s in segments if s.num_tokens > 1]
        self.singles = [s for s in segments if s.num_tokens == 1]

    @cached_property
    def slot_mapping(self) -> torch.Tensor:
        """(tokens,) int64: where each new token's keys and values are written."""
        size = self.cache.block_size
        return self._tensor(
            [
                slot
                for s in self.segments
                for slot in slots_of(s.block_table, s.start, s.context, size)
            ]
        )

    @cached_property
    def single_rows(self) -> torch.Tensor:
        """(singles,) int64: the rows of the batch that hold single tokens."""
        return self._tensor([s.row for s in self.singles])

    @cached_property
    def single_tables(self) -> torch.Tensor:
        """(singles, longest table) int64: block tables, padded with the null block."""
        null_block = self.cache.null_slot // self.cache.block_size
        longest = max(len(s.block_table) for s in self.singles)
        return self._tensor(
            [s.block_table + [null_block] * (longest - len(s.block_table)) for s in self.singles]
        )

    @cached_property
    def single_contexts(self) -> torch.Tensor:
        """(singles,) int64: tokens that each attends to."""
        return self._tensor([s.context for s in self.singles])

    @cached_property
    def single_slots(self) -> torch.Tensor:
        """(singles, longest context) int64: slots to read, padded with the null slot."""
        slots = self._slots(self.single_tables)[:, : self.single_mask.shape[-1]]
        return slots.masked_fill(~self.single_mask[:, 0, 0], self.cache.null_slot)

    @cached_property
    def single_mask(self) -> torch.Tensor:
        """(singles, 1, 1, longest context) bool: True where there is a token."""
        import torch

        positions = torch.arange(max(s.context for s in self.singles), device=self.device)
        return (positions < self.single_contexts[:, None])[:, None, None, :]

    @cached_property
    def chunk_slots(self) -> list[torch.Tensor | slice]:
        """Per chunk, the slots to read: a slice where its blocks are adjacent, which reads them in
        place, else (context,) int64."""
        return [
            self._run(s) or self._slots(self._tensor([s.block_table]))[0, : s.context]
            for s in self.chunks
        ]

    def _run(self, segment: Segment) -> slice | None:
        table, size = segment.block_table, self.cache.block_size
        if table != list(range(table[0], table[0] + len(table))):
            return None
        return slice(table[0] * size, table[0] * size + segment.context)

    @cached_property
    def chunk_masks(self) -> list[torch.Tensor]:
        """Per chunk, (tokens, context) bool: True where the position is not in the future."""
        import torch

        masks = []
        for chunk in self.chunks:
            queries = torch.arange(chunk.start, chunk.context, device=self.device)
            keys = torch.arange(chunk.context, device=self.device)
            masks.append(keys[None, :] <= queries[:, None])
        return masks

    def _slots(self, tables: torch.Tensor) -> torch.Tensor:
        """(rows, blocks) block ids to (rows, blocks * block size) slots."""
        import torch

        offsets = torch.arange(self.cache.block_size, device=self.device)
        return (tables[:, :, None] * self.cache.block_size + offsets).flatten(1)

    def _tensor(self, values: list) -> torch.Tensor:
        import torch

        return torch.tensor(values, dtype=torch.int64, device=self.device)
