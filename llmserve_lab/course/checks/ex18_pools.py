"""Right answers to 18.3, 18.4 and 18.5: a block pool that grows, class by class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmserve_lab.kv_cache import BlockAllocator, OutOfBlocksError


class Blocks(BlockAllocator):
    """What the notebook gives: who is free, and how often each is referred to."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.free = list(range(num_blocks))
        self.count = [0] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self.free)

    def num_refs(self, block: int) -> int:
        return self.count[block]


class FreeList(Blocks):
    """Without sharing."""

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        if count > len(self.free):
            raise OutOfBlocksError(f"{count} blocks wanted, {len(self.free)} free.")
        blocks = [self.free.pop() for _ in range(count)]
        for block in blocks:
            self.count[block] = 1
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.count[block] = 0
            self.free.append(block)

    def share(self, blocks: Iterable[int]) -> None:
        assert not list(blocks), "this pool shares nothing"


class CountedPool(FreeList):
    """With reference counts."""

    def share(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self.count[block] == 0:
                self.free.remove(block)
            self.count[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if self.count[block] == 0:
                raise ValueError(f"Block {block} is free already.")
            self.count[block] -= 1
            if self.count[block] == 0:
                self.free.append(block)


class MyPool(CountedPool):
    """With copy-on-write of its own."""

    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        first = start // self.block_size
        shared = [i for i in range(first, len(block_table)) if self.count[block_table[i]] > 1]
        fresh = self.allocate(len(shared))
        copies = [(block_table[i], block) for i, block in zip(shared, fresh, strict=True)]
        for index, block in zip(shared, fresh, strict=True):
            block_table[index] = block
        self.release([source for source, _ in copies])
        return copies
