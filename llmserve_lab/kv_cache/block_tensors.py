"""Whole blocks: copied, moved to host memory and back, counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class BlockTensors(ABC):
    """What every block-wise KV cache can do, whatever its blocks consist of."""

    @abstractmethod
    def by_block(self) -> list[torch.Tensor]:
        """Everything that is stored, as views with one row per block: what a block consists of."""

    def copy_blocks(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy whole blocks, one after another: (source, destination) pairs."""
        parts = self.by_block()
        for source, destination in copies:
            for part in parts:
                part[destination] = part[source]

    def read_blocks(self, blocks: Sequence[int]) -> list[torch.Tensor]:
        """The content of `blocks` in host memory, for `write_blocks`."""
        index = self._index(blocks)
        return [part.index_select(0, index).cpu() for part in self.by_block()]

    def write_blocks(self, blocks: Sequence[int], content: Sequence[torch.Tensor]) -> None:
        """Put back what `read_blocks` returned, bit by bit, into as many blocks of any number."""
        index = self._index(blocks)
        for part, saved in zip(self.by_block(), content, strict=True):
            part.index_copy_(0, index, saved.to(part.device))

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensors hold, the null block included."""
        return sum(part.numel() * part.element_size() for part in self.by_block())

    def _index(self, blocks: Sequence[int]) -> torch.Tensor:
        import torch

        return torch.tensor(blocks, dtype=torch.int64, device=self.by_block()[0].device)
