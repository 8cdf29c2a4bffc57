"""The KV cache's tensors, addressed by slot: slot = block * block_size + offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.kv_cache.block_tensors import BlockTensors
from llmserve_lab.kv_cache.shape import KVShape

if TYPE_CHECKING:
    import torch


class PagedKVCache(BlockTensors):
    """Keys and values of every layer, in `num_blocks` blocks and one that is never written.

    keys, values: per layer (slots, KV heads, head dim). The last block is the null block: padding
    reads it, so that no unwritten slot ever reaches the arithmetic.
    """

    def __init__(
        self,
        shape: KVShape,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        from llmserve_lab.kv_cache.zeros import zeros

        self.shape, self.block_size = shape, block_size
        self.null_slot = num_blocks * block_size
        size = (self.null_slot + block_size, shape.num_kv_heads, shape.head_dim)
        layers = range(shape.num_layers)
        self.keys = [zeros(size, dtype, device) for _ in layers]
        self.values = [zeros(size, dtype, device) for _ in layers]

    def write(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Store new tokens. slots: (tokens,) int64; keys, values: (tokens, KV heads, head dim)."""
        self.keys[layer].index_copy_(0, slots, keys)
        self.values[layer].index_copy_(0, slots, values)

    def read(self, layer: int, slots: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values at `slots`, any shape of int64: (*slots, KV heads, head dim) each. A
        slice is read in place."""
        return self.keys[layer][slots], self.values[layer][slots]

    def by_block(self) -> list[torch.Tensor]:
        rows = (-1, self.block_size)
        return [t.unflatten(0, rows) for t in (*self.keys, *self.values)]


def slots_of(block_table: list[int], start: int, stop: int, block_size: int) -> list[int]:
    """The slots of token positions `start` to `stop - 1`."""
    return [
        block_table[position // block_size] * block_size + position % block_size
        for position in range(start, stop)
    ]
