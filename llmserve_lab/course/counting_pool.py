"""A block pool that counts what paging asks of it."""

from __future__ import annotations

from collections.abc import Sequence

from llmserve_lab.kv_cache import BlockPool, Prefix


class CountingPool(BlockPool):
    """As `BlockPool`. num_taken: blocks handed out. num_copied: of these, copies that were made
    because a shared block was to be written. num_hashed: blocks whose prefix was hashed."""

    def __init__(
        self, num_blocks: int, block_size: int, enable_prefix_caching: bool = False
    ) -> None:
        super().__init__(num_blocks, block_size, enable_prefix_caching)
        self.num_taken = self.num_copied = self.num_hashed = 0

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        blocks = super().allocate(count, after)
        self.num_taken += count
        return blocks

    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        copies = super().make_writable(block_table, start)
        self.num_copied += len(copies)
        return copies

    def extend(self, parent: Prefix | None, tokens: Sequence[int], salt: str = "") -> Prefix:
        self.num_hashed += 1
        return super().extend(parent, tokens, salt)
