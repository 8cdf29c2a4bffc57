"""Random draws of tokens: one uniform number per row, looked up in the cumulated probabilities."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

BITS = 53  # what a float64 holds of a number in [0, 1)


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) for draw `index` of a seeded request: no state, so neither neighbours nor
    preemption change it, and the same on every machine."""
    data = seed.to_bytes(8, "little") + index.to_bytes(8, "little")
    digest = int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
    return (digest >> (64 - BITS)) / 2**BITS


def draw(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """One index per row, in proportion to its weights; never one whose weight is 0.

    weights: (rows, vocabulary) float32, at least one above 0 in each row. uniforms: (rows,)
    float64 in [0, 1). Returns (rows,) int64. The row is searched in two levels of about
    sqrt(vocabulary), so that float64 sums stay cheap.
    """
    import torch

    rows, vocabulary = weights.shape
    width = math.isqrt(vocabulary - 1) + 1
    parts = torch.nn.functional.pad(weights, (0, -vocabulary % width)).view(rows, -1, width)
    sums = parts.sum(-1, dtype=torch.float64)
    ends = sums.cumsum(-1)
    target = uniforms[:, None] * ends[:, -1:]
    part = _first_above(ends, target)
    rest = target - (ends.gather(1, part) - sums.gather(1, part))
    chosen = parts[torch.arange(rows, device=weights.device), part[:, 0]].double()
    return (part * width + _first_above(chosen.cumsum(-1), rest.clamp(min=0)))[:, 0]


def _first_above(ends: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Where the running sums first exceed `target`; if rounding has put it past the last sum, where
    they first reach it."""
    import torch

    last = (ends < ends[:, -1:]).sum(-1, keepdim=True).clamp(max=ends.shape[1] - 1)
    return torch.minimum(torch.searchsorted(ends, target, right=True), last)
