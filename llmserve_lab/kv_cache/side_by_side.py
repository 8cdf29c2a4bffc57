"""Several KV caches behind the same block tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_lab.engine.preemption import BlockStore


class SideBySide:
    """Copies whole blocks in each of its caches: that of a model, and that of its draft."""

    def __init__(self, *caches: BlockStore) -> None:
        self.caches = caches

    def copy_blocks(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy whole blocks, one after another: (source, destination) pairs."""
        pairs = list(copies)
        for cache in self.caches:
            cache.copy_blocks(pairs)

    def read_blocks(self, blocks: Sequence[int]) -> list[Any]:
        """The content of `blocks` in host memory, for `write_blocks`."""
        return [cache.read_blocks(blocks) for cache in self.caches]

    def write_blocks(self, blocks: Sequence[int], content: Sequence[Any]) -> None:
        """Put back what `read_blocks` returned."""
        for cache, part in zip(self.caches, content, strict=True):
            cache.write_blocks(blocks, part)
