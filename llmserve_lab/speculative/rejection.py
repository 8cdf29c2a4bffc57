"""Accepting or rejecting drafts so that the outputs follow the target's distribution exactly
(Leviathan et al. 2023, algorithm 1 and appendix A.1; Chen et al. 2023, theorem 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.engine.draws import draw

if TYPE_CHECKING:
    import torch


def normalised(weights: torch.Tensor) -> torch.Tensor:
    """(rows, vocabulary): each row divided by its sum."""
    return weights / weights.sum(-1, keepdim=True)


def acceptance(p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor) -> torch.Tensor:
    """How likely each draft is to be accepted: min(1, p(x) / q(x)), (rows,) float64.

    p, q: (rows, vocabulary), target and draft, normalised; drafts: (rows,) int64, drawn from q.
    """
    column = drafts[:, None]
    ratio = p.gather(1, column).double() / q.gather(1, column).double()
    return ratio[:, 0].clamp(max=1)


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """What a rejected draft is replaced from: max(0, p - q), normalised, (rows, vocabulary). With
    it, accepted and replaced tokens together follow p. Where p and q are the same no draft is
    rejected, and p stands for it."""
    import torch

    rest = (p - q).clamp(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total, p)


def judged(
    p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The token in each draft's place, (rows,) int64, and whether it is the draft, (rows,) bool.

    uniforms: (2, rows) float64 in [0, 1), whether it is accepted and what else it becomes.
    """
    import torch

    right = uniforms[0] < acceptance(p, q, drafts)
    others = draw(residual(p, q), uniforms[1])
    return torch.where(right, drafts, others), right
