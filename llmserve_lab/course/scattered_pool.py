"""A block pool that maps logical to physical blocks at random."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from llmserve_lab.kv_cache import BlockAllocator, OutOfBlocksError


class ScatteredPool(BlockAllocator):
    """Draws each block from the free ones by chance; the same seed draws the same ones."""

    def __init__(self, num_blocks: int, block_size: int, seed: int = 0) -> None:
        super().__init__(num_blocks, block_size)
        self._random = Random(seed)
        self._refs = [0] * num_blocks
        self._free = list(range(num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def num_refs(self, block: int) -> int:
        return self._refs[block]

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        if count > len(self._free):
            raise OutOfBlocksError(f"{count} blocks wanted, {len(self._free)} free.")
        blocks = self._random.sample(self._free, count)
        self.share(blocks)
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if self._refs[block] == 0:
                self._free.remove(block)
            self._refs[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if self._refs[block] == 0:
                raise ValueError(f"Block {block} is free already; it was released twice.")
            self._refs[block] -= 1
            if self._refs[block] == 0:
                self._free.append(block)
