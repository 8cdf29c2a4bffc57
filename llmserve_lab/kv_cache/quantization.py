"""Uniform quantization with an offset: code = round((x - offset) / scale), in few bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

BITS_PER_BYTE = 8
HALF_MAX = 65504.0  # float16's largest number


class Grid(NamedTuple):
    """The values that codes stand for: offset + code * scale. float16, one of each per group."""

    scale: torch.Tensor
    offset: torch.Tensor

    def top(self, bits: int) -> torch.Tensor:
        """float32: the largest value."""
        return self.offset.float() + largest_code(bits) * self.scale.float()


def largest_code(bits: int) -> int:
    return 2**bits - 1


def grid_between(low: torch.Tensor, high: torch.Tensor, bits: int) -> Grid:
    """The grid from `low` to `high`, float32 of one shape. What float16 cannot hold (beyond 65504)
    is cut off."""
    offset = low.clamp(-HALF_MAX, HALF_MAX).half()
    scale = (high - offset.float()) / largest_code(bits)
    return Grid(scale.clamp(0, HALF_MAX).half(), offset)


def quantize(values: torch.Tensor, grid: Grid, bits: int) -> torch.Tensor:
    """uint8 codes of float32 values; the grid must broadcast to them. The error is at most half a
    scale, or float16's rounding of offset and scale where that is larger."""
    import torch

    scale = grid.scale.float()
    scale = torch.where(scale == 0, 1.0, scale)  # all values of the group are equal
    codes = ((values - grid.offset.float()) / scale).round()
    return codes.clamp(0, largest_code(bits)).to(torch.uint8)


def dequantize(codes: torch.Tensor, grid: Grid) -> torch.Tensor:
    """float32 values of uint8 codes; the grid must broadcast to them."""
    return grid.offset.float() + codes.float() * grid.scale.float()


def packed_length(length: int, bits: int) -> int:
    """Bytes that `length` codes take."""
    return -(-length * bits // BITS_PER_BYTE)


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Put 8 / bits codes of the last dimension into each byte, the first into the lowest bits."""
    import torch

    per_byte = BITS_PER_BYTE // bits
    if per_byte == 1:
        return codes
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[-1] % per_byte))
    parts = padded.unflatten(-1, (-1, per_byte))
    packed = parts[..., 0].clone()
    for index in range(1, per_byte):
        packed |= parts[..., index] << (index * bits)
    return packed


def unpack(packed: torch.Tensor, length: int, bits: int) -> torch.Tensor:
    """The `length` codes of the last dimension that `pack` put together."""
    import torch

    per_byte = BITS_PER_BYTE // bits
    if per_byte == 1:
        return packed
    parts = [(packed >> (index * bits)) & largest_code(bits) for index in range(per_byte)]
    return torch.stack(parts, -1).flatten(-2)[..., :length]
