"""A paged KV cache in 8 or 4 bits: keys per channel, values per token (KIVI, Liu et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llmserve_lab.kv_cache.block_tensors import BlockTensors
from llmserve_lab.kv_cache.paged import PagedKVCache
from llmserve_lab.kv_cache.quantization import (
    Grid,
    dequantize,
    grid_between,
    pack,
    packed_length,
    quantize,
    unpack,
)
from llmserve_lab.kv_cache.shape import KVShape, bits_of

if TYPE_CHECKING:
    import torch

INFINITY = float("inf")


class Quantized(NamedTuple):
    """Packed uint8 codes (blocks, block size, KV heads, bytes), and their grid. Keys: one scale
    per channel of a block, (blocks, 1, KV heads, head dim). Values: one per token and head,
    (blocks, block size, KV heads, 1)."""

    codes: torch.Tensor
    grid: Grid


class QuantizedKVCache(BlockTensors):
    """As `PagedKVCache`, in codes of `bits` bits with float16 scales and offsets that lie in the
    block they belong to, and so are shared, copied and moved with it.

    Channels of keys differ much and stay alike from token to token; those of values do not. A block
    that fills up token by token gets wider key grids as it goes: each time a channel does, its
    codes are rounded once more.
    """

    def __init__(
        self,
        shape: KVShape,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        bits: int = 8,
    ) -> None:
        self.shape, self.block_size, self.bits = shape, block_size, bits
        self.dtype, self.device = dtype, device
        self.null_slot = num_blocks * block_size
        blocks, heads, dim = num_blocks + 1, shape.num_kv_heads, shape.head_dim
        layers = range(shape.num_layers)
        self.keys = [self._zeros((blocks, 1, heads, dim)) for _ in layers]
        self.values = [self._zeros((blocks, block_size, heads, 1)) for _ in layers]

    def _zeros(self, grid: tuple[int, int, int, int]) -> Quantized:
        import torch

        from llmserve_lab.kv_cache.zeros import zeros

        codes = (grid[0], self.block_size, grid[2], packed_length(self.shape.head_dim, self.bits))
        scale, offset = (zeros(grid, torch.float16, self.device) for _ in range(2))
        return Quantized(zeros(codes, torch.uint8, self.device), Grid(scale, offset))

    def by_block(self) -> list[torch.Tensor]:
        return [t for q in (*self.keys, *self.values) for t in (q.codes, *q.grid)]

    def write(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Store new tokens. slots: (tokens,) int64, within a block in rising order after those
        written before; keys, values: (tokens, KV heads, head dim)."""
        self._write_values(self.values[layer], slots, values.float())
        self._write_keys(self.keys[layer], slots, keys.float())

    def _write_values(self, stored: Quantized, slots: torch.Tensor, values: torch.Tensor) -> None:
        low, high = values.aminmax(dim=-1, keepdim=True)
        grid = grid_between(low, high, self.bits)
        codes = pack(quantize(values, grid, self.bits), self.bits)
        for target, new in ((stored.codes, codes), *zip(stored.grid, grid, strict=True)):
            target.flatten(0, 1).index_copy_(0, slots, new)

    def _write_keys(self, stored: Quantized, slots: torch.Tensor, keys: torch.Tensor) -> None:
        """Quantize again, as a whole, each block that gets a new key."""
        import torch

        blocks, content, is_new, is_old = self._by_block(slots, keys)
        before = Grid(*(part[blocks] for part in stored.grid))
        grid, grown = self._widened(before, content, is_new, is_old.any(1, keepdim=True))
        codes = unpack(stored.codes[blocks], self.shape.head_dim, self.bits)
        content = torch.where(is_old, dequantize(codes, before), content)
        kept = is_old & ~grown
        codes = torch.where(kept, codes, quantize(content, grid, self.bits))
        stored.codes[blocks] = pack(codes, self.bits)
        for target, new in zip(stored.grid, grid, strict=True):
            target[blocks] = new

    def _by_block(self, slots: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The blocks that get new keys; these, in place (blocks, block size, KV heads, head dim);
        and which places are new, and which hold older ones: (blocks, block size, 1, 1) bool."""
        import torch

        blocks, row = (slots // self.block_size).unique(return_inverse=True)
        place = slots % self.block_size
        size = (len(blocks), self.block_size)
        content = keys.new_zeros(*size, *keys.shape[1:])
        content[row, place] = keys
        is_new = torch.zeros(size, dtype=torch.bool, device=slots.device)
        is_new[row, place] = True
        first = place.new_full(size[:1], self.block_size).scatter_reduce(0, row, place, "amin")
        is_old = torch.arange(self.block_size, device=slots.device) < first[:, None]
        return blocks, content, is_new[:, :, None, None], is_old[:, :, None, None]

    def _widened(
        self, before: Grid, content: torch.Tensor, is_new: torch.Tensor, has_old: torch.Tensor
    ) -> tuple[Grid, torch.Tensor]:
        """The grids that hold the new keys as well, and which of them had to grow."""
        import torch

        low = torch.where(is_new, content, INFINITY).amin(1, keepdim=True)
        high = torch.where(is_new, content, -INFINITY).amax(1, keepdim=True)
        old_low, old_high = before.offset.float(), before.top(self.bits)
        grown = ~has_old | (low < old_low) | (high > old_high)
        low = torch.minimum(low, torch.where(has_old, old_low, INFINITY))
        high = torch.maximum(high, torch.where(has_old, old_high, -INFINITY))
        wider = grid_between(low, high, self.bits)
        parts = zip(wider, before, strict=True)
        return Grid(*(torch.where(grown, new, old) for new, old in parts)), grown

    def read(self, layer: int, slots: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values at `slots`, a slice or any shape of int64: (*slots, KV heads, head dim)
        each, in the model's dtype."""
        import torch

        if isinstance(slots, slice):
            slots = torch.arange(slots.start, slots.stop, device=self.device)
        blocks = slots // self.block_size
        keys, values = self.keys[layer], self.values[layer]
        key_grid = Grid(*(part[:, 0][blocks] for part in keys.grid))
        value_grid = Grid(*(part.flatten(0, 1)[slots] for part in values.grid))
        return self._values_of(keys, slots, key_grid), self._values_of(values, slots, value_grid)

    def _values_of(self, stored: Quantized, slots: torch.Tensor, grid: Grid) -> torch.Tensor:
        packed = stored.codes.flatten(0, 1)[slots]
        codes = unpack(packed, self.shape.head_dim, self.bits)
        return dequantize(codes, grid).to(self.dtype)


KVCache = PagedKVCache | QuantizedKVCache


def make_kv_cache(
    kv_cache_dtype: str,
    shape: KVShape,
    num_blocks: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> KVCache:
    """The cache that `kv_cache_dtype` names: "auto" keeps the model's dtype, "int8" and "int4"
    quantize.

    Raises:
        ValueError: no such dtype.
    """
    bits = bits_of(kv_cache_dtype)
    if bits is None:
        return PagedKVCache(shape, num_blocks, block_size, dtype, device)
    return QuantizedKVCache(shape, num_blocks, block_size, dtype, device, bits)
