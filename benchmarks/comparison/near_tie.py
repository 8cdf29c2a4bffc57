"""When two outputs in bf16 may both be right.

Rounding decides between two tokens whose logits are nearly equal, and from there on the texts part.
So where an output differs, every one of its tokens from there on must be nearly the best: its
logit, after that output's own earlier tokens, at most `NEAR` standard deviations of the row below
the largest, by the same weights in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from benchmarks.comparison.ranking import Tokens, first_difference

NEAR = 0.25  # an arbitrary token's logit is about four standard deviations below the largest


class NearTies:
    """Judges outputs after `prompts`. shortfalls(prompt, output): (output tokens,) how far each
    token's logit lies below the largest, in standard deviations."""

    def __init__(
        self,
        prompts: Sequence[tuple[int, ...]],
        shortfalls: Callable[[tuple[int, ...], tuple[int, ...]], list[float]],
    ) -> None:
        self._prompts = prompts
        self._shortfalls = lru_cache(maxsize=None)(shortfalls)
        self.largest = 0.0  # shortfall that was let pass

    def __call__(self, ours: Tokens, theirs: Tokens) -> list[str]:
        found = []
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            start = first_difference(mine, other)
            for output in (mine, other) if mine != other else ():
                found += self._faults(number, output, start)
        return found[:1]

    def _faults(self, number: int, output: tuple[int, ...], start: int) -> list[str]:
        short = self._shortfalls(self._prompts[number], output)[start:]
        worst = max(short)
        if worst <= NEAR:
            self.largest = max(self.largest, worst)
            return []
        place = start + next(i for i, value in enumerate(short) if value > NEAR)
        return [
            f"different outputs, by more than a near tie: output token {place} of request {number} "
            f"is {short[place - start]:.2f} standard deviations below the best"
        ]


def shortfalls_of(folder: Any) -> Callable[[tuple[int, ...], tuple[int, ...]], list[float]]:
    """By the weights in `folder`, in float32; loaded at the first use."""

    @lru_cache(maxsize=1)
    def model() -> Any:
        import torch
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def shortfalls(prompt: tuple[int, ...], output: tuple[int, ...]) -> list[float]:
        import torch

        ids = torch.tensor([prompt + output])
        with torch.inference_mode():
            logits = model()(ids[:, :-1], logits_to_keep=len(output)).logits[0]
        chosen = logits.gather(-1, ids[0, -len(output) :, None])[:, 0]
        return ((logits.amax(-1) - chosen) / logits.std(-1)).tolist()

    return shortfalls
