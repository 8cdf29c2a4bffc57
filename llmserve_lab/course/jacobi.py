"""Decoding all places at once: guess them all, compute them all, again until nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def refine(model: Any, prompt: Sequence[int], guess: Sequence[int]) -> list[int]:
    """What the model would write at each place after `prompt`, if the places before it held
    `guess`: one pass, all places side by side.

    model: what `load` returned. Returns as many tokens as `guess` has.

    Raises:
        ValueError: no prompt or no guess.
    """
    import torch

    if not len(prompt) or not len(guess):
        raise ValueError("refine needs at least one prompt token and one guessed token.")
    device = model.model.device
    ids = torch.tensor([[*prompt, *guess[:-1]]], device=device)  # (1, tokens)
    with torch.inference_mode():
        logits = model.model(ids, use_cache=False).logits[0, -len(guess) :]
    picks: list[int] = logits.argmax(dim=-1).tolist()
    return picks


def jacobi_passes(model: Any, prompt: Sequence[int], guess: Sequence[int]) -> list[list[int]]:
    """The guess after each pass, until a pass changes nothing: then every token follows from those
    before it, so the text is the greedy one (Jacobi decoding: Santilli et al. 2023, section 3).

    Raises:
        ValueError: no prompt or no guess.
    """
    passes: list[list[int]] = []
    before: list[int] = []
    now = list(guess)
    while now != before:
        before, now = now, refine(model, prompt, now)
        passes.append(now)
    return passes


def right_so_far(passes: Sequence[Sequence[int]]) -> list[int]:
    """For each pass, how many tokens from the start are those of the last pass."""
    final = passes[-1]
    return [
        next((place for place, token in enumerate(row) if token != final[place]), len(final))
        for row in passes
    ]
