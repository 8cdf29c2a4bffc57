"""Where a captured decode step reads its batch: memory whose address never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.attention import BatchMetadata, Segment
from llmserve_lab.attention.upload import upload
from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.kv_cache import KVCache

if TYPE_CHECKING:
    import torch


class DecodeBuffers:
    """One token for each of up to `num_rows` requests. tokens, positions, slots (where its keys and
    values go) and contexts: (rows,) int64. tables: (rows, blocks) int64, for contexts of up to
    max_model_len. next_tokens: (rows,) int64, what greedy sampling makes of the step.

    Rows that no request fills hold a token that writes to and reads from `dummy_block`, which no
    pool ever hands out.
    """

    def __init__(
        self,
        cache: KVCache,
        dummy_block: int,
        num_rows: int,
        max_model_len: int,
        device: torch.device,
    ) -> None:
        import torch

        self.cache, self.device, self.dummy_block = cache, device, dummy_block
        self.width = -(-max_model_len // cache.block_size)
        self.numbers = torch.zeros((4, num_rows), dtype=torch.int64, device=device)
        self.tokens, self.positions, self.slots, self.contexts = self.numbers
        self.rows = torch.arange(num_rows, device=device)
        self.tables = torch.full((num_rows, self.width), dummy_block, device=device)
        self.next_tokens = torch.zeros_like(self.tokens)

    def fill(self, batch: list[Scheduled], num_rows: int) -> None:
        """Write a batch of single tokens and pad it to `num_rows`."""
        size, padding = self.cache.block_size, num_rows - len(batch)
        columns, tables = [], []
        for item in batch:
            start, table = item.start, item.request.block_table[: self.width]
            slot = table[start // size] * size + start % size
            columns.append([item.request.token_ids[start], start, slot, start + 1])
            tables.append(table)
        longest = max(map(len, tables), default=1)
        columns += [[0, 0, self.dummy_block * size, 1]] * padding
        tables += [[]] * padding
        tables = [table + [self.dummy_block] * (longest - len(table)) for table in tables]
        self.numbers[:, :num_rows].copy_(upload(columns, self.device).T)
        self.tables[:num_rows, :longest].copy_(upload(tables, self.device))

    def metadata(self, num_rows: int) -> BatchMetadata:
        """The first rows as attention takes a batch. To be made anew in each step: what attention
        derives from it depends on what the buffers hold."""
        longest = self.width * self.cache.block_size
        segments = [Segment(row, longest - 1, 1, []) for row in range(num_rows)]
        batch = BatchMetadata(self.cache, segments, self.device)
        batch.slot_mapping, batch.single_rows = self.slots[:num_rows], self.rows[:num_rows]
        batch.single_tables = self.tables[:num_rows]
        batch.single_contexts = self.contexts[:num_rows]
        return batch
