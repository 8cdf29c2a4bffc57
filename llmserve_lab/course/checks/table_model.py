"""A model of a few tokens for the graders: its logits depend on the whole text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class TableModel:
    """Call it with all tokens so far; it gives the logits of the next one, (vocabulary,)."""

    rows: tuple[tuple[float, ...], ...]

    def __call__(self, tokens: list[int]) -> torch.Tensor:
        import torch

        if not isinstance(tokens, list) or not tokens:
            raise TypeError("the model takes a list with every token so far")
        place = sum((i + 1) * token for i, token in enumerate(tokens)) % len(self.rows)
        return torch.tensor(self.rows[place])
