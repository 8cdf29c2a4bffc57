"""Top-k, top-p and min-p: which tokens are left to draw from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    import torch

FIRST_LOOK = 256  # likeliest tokens that are ranked before a whole vocabulary is sorted
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
    """Only the likeliest tokens: top-k of them, and of these as many as reach top-p. A whole row is
    sorted only where its first tokens do not tell."""
    vocabulary = weights.shape[-1]
    ranks = [p.top_k if 0 < p.top_k < vocabulary else vocabulary for p in params]
    limits = [p.top_p if p.top_p < 1 else NO_LIMIT for p in params]
    width = min(vocabulary, max(k if k < vocabulary else FIRST_LOOK for k in ranks))
    if weights.is_cuda:
        width = vocabulary  # a GPU sorts fast, and asking how it went would make it wait
    count, lowest = _cut(weights, width, ranks, limits)
    reached = count[:, 0].tolist() if width < vocabulary else []
    unsure = [i for i, n in enumerate(reached) if n == width < ranks[i]]
    if unsure:
        few = [ranks[i] for i in unsure], [limits[i] for i in unsure]
        count[unsure], lowest[unsure] = _cut(weights[unsure], vocabulary, *few)
    kept = weights.masked_fill(weights < lowest, 0)
    return _without_surplus(kept, count, lowest)


def _cut(
    weights: torch.Tensor, width: int, ranks: list[int], limits: list[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """How many of the `width` likeliest tokens stay, and the lowest of their weights: each
    (rows, 1)."""
    import torch

    vocabulary, best = weights.shape[-1], weights.topk(width).values
    within = torch.arange(width, device=weights.device) < column(best, ranks)
    best = best.masked_fill(~within, 0)
    whole = column(best, [float(k == vocabulary) for k in ranks]) > 0
    total = best.sum(-1, keepdim=True).masked_fill(whole, 1)
    before = best.cumsum(-1) - best
    kept = within & (before < column(best, limits) * total)
    count = kept.sum(-1, keepdim=True).clamp(min=1)
    return count, best.gather(-1, count - 1)


def _without_surplus(kept: torch.Tensor, count: torch.Tensor, lowest: torch.Tensor) -> torch.Tensor:
    """Where several tokens share the lowest weight, only as many of them as `count` allows."""
    equal = kept == lowest
    surplus = (kept > 0).sum(-1, keepdim=True) - count
    if kept.is_cuda or bool((surplus > 0).any()):
        kept = kept.masked_fill(
            equal & (equal.sum(-1, keepdim=True) - surplus < equal.cumsum(-1)), 0
        )
    return kept


def column(like: torch.Tensor, values: list[float] | list[int]) -> torch.Tensor:
    """(rows, 1) of `like`'s dtype and device."""
    import torch

    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
