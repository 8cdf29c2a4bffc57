"""A batch of prompts of different lengths as a padded rectangle, as transformers wants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.course.past_model import PastModel

if TYPE_CHECKING:
    import torch


def left_padded(prompts: Sequence[Sequence[int]], pad: int) -> dict[str, torch.Tensor]:
    """`input_ids`, `attention_mask` (0 at padding) and `position_ids` (counted without padding, and
    0 there), each (rows, longest) int64. Padding stands on the left: so the last column holds every
    row's last token.

    prompts: token ids, at least one each.
    """
    import torch

    longest = max(map(len, prompts))
    gaps = [longest - len(prompt) for prompt in prompts]
    rows = list(zip(gaps, prompts, strict=True))
    return {
        "input_ids": torch.tensor([[pad] * gap + list(prompt) for gap, prompt in rows]),
        "attention_mask": torch.tensor([[0] * gap + [1] * len(prompt) for gap, prompt in rows]),
        "position_ids": torch.tensor([[0] * gap + [*range(len(prompt))] for gap, prompt in rows]),
    }


def padded_greedy(
    network: Any,
    batch: dict[str, torch.Tensor],
    max_tokens: int,
    next_positions: torch.Tensor,
) -> list[list[int]]:
    """Greedy tokens of each row, with the positions that are given, right or wrong.

    Args:
        network: a transformers model, such as `load(...).model`.
        batch: as `left_padded` makes it.
        next_positions: (rows, 1), of the first new token; each later one follows.
    """
    import torch

    model = PastModel(network)
    given = {name: tensor.to(network.device) for name, tensor in batch.items()}
    mask, positions = given["attention_mask"], next_positions.to(network.device)
    output = model(**given)
    chosen = [output.logits[:, -1].argmax(-1, keepdim=True)]
    while len(chosen) < max_tokens:
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        output = model(chosen[-1], output.past_key_values, mask, positions)
        chosen.append(output.logits[:, -1].argmax(-1, keepdim=True))
        positions = positions + 1
    rows: list[list[int]] = torch.cat(chosen, dim=1).tolist()
    return rows
