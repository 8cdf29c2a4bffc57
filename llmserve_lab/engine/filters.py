"""Top-k, top-p and min-p: which tokens are left to draw from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    import torch

NO_LIMIT = float("inf")


def probabilities(logits: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """Softmax after temperature, with what top-k, top-p and min-p exclude at 0.

    logits: (rows, vocabulary) float32. Returns the same shape, not normalised again. The likeliest
    token always stays; at a border equally likely tokens go in by their ids.
    """
    if any(p.temperature != 1 for p in params):
        logits = logits / column(logits, [p.temperature for p in params])
    weights = logits.softmax(-1)
    rows = [row for row, p in enumerate(params) if p.filters]
    if len(rows) == len(params):
        return _filtered(weights, params)
    if rows:
        weights[rows] = _filtered(weights[rows], [params[row] for row in rows])
    return weights


def _filtered(weights: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    rows = [row for row, p in enumerate(params) if p.top_k > 0 or p.top_p < 1]
    if len(rows) == len(params):
        weights = _first(weights, params)
    elif rows:
        weights[rows] = _first(weights[rows], [params[row] for row in rows])
    if any(p.min_p > 0 for p in params):
        floor = column(weights, [p.min_p for p in params]) * weights.amax(-1, keepdim=True)
        weights = weights.masked_fill(weights < floor, 0)
    return weights


def _first(weights: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """Only the likeliest tokens: top-k of them, and of these as many as reach top-p."""
    import torch

    vocabulary = weights.shape[-1]
    ranks = [p.top_k if 0 < p.top_k < vocabulary else vocabulary for p in params]
    limits = column(weights, [p.top_p if p.top_p < 1 else NO_LIMIT for p in params])
    most = torch.tensor(ranks, device=weights.device)[:, None]
    rising = _sorted(weights)
    falling = rising.flip(-1)
    reached = falling.cumsum(-1)
    before_limit = torch.searchsorted(reached, limits * reached.gather(-1, most - 1))
    count = torch.minimum(before_limit + 1, most)
    lowest = falling.gather(-1, count - 1)
    surplus = vocabulary - torch.searchsorted(rising, lowest) - count
    return _without_surplus(weights.masked_fill(weights < lowest, 0), lowest, surplus)


def _sorted(weights: torch.Tensor) -> torch.Tensor:
    """Each row in rising order. NumPy sorts with the processor's vector instructions, many times
    faster than torch on a CPU."""
    import numpy
    import torch

    if weights.is_cuda:
        return weights.sort().values
    return torch.from_numpy(numpy.sort(weights.numpy(), axis=-1))


def _without_surplus(
    kept: torch.Tensor, lowest: torch.Tensor, surplus: torch.Tensor
) -> torch.Tensor:
    """Of the tokens that share the lowest weight, leave out the last `surplus`: (rows, 1) int64."""
    if not kept.is_cuda:  # a GPU would have to wait for the answer, and does all rows instead
        rows = surplus[:, 0].nonzero()[:, 0]
        if not len(rows):
            return kept
        if len(rows) < len(kept):
            kept[rows] = _without_surplus(kept[rows], lowest[rows], surplus[rows])
            return kept
    equal = kept == lowest
    allowed = equal.sum(-1, keepdim=True) - surplus
    return kept.masked_fill(equal & (equal.cumsum(-1) > allowed), 0)


def column(like: torch.Tensor, values: list[float] | list[int]) -> torch.Tensor:
    """(rows, 1) of `like`'s dtype and device."""
    import torch

    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
