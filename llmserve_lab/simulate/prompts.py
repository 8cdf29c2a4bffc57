"""The token ids of a workload's prompts: alike where a prefix is shared, and nowhere else."""

from __future__ import annotations

from random import Random
from typing import Protocol

from llmserve_lab.simulate.workload import Ask


class Prompts(Protocol):
    """Makes the token ids of request number `number`."""

    def make(self, ask: Ask, number: int) -> list[int]: ...


class NumberedPrompts:
    """For a simulation, where only equality counts: one id per prefix and one per request."""

    def __init__(self) -> None:
        self._prefixes: dict[str, int] = {}

    def make(self, ask: Ask, number: int) -> list[int]:
        """Prefixes have even ids, and what is a request's own an odd one."""
        shared = self._prefixes.setdefault(ask.prefix, len(self._prefixes))
        own = ask.prompt_tokens - ask.prefix_tokens
        return [2 * shared] * ask.prefix_tokens + [2 * number + 1] * own


class RandomPrompts:
    """For a real model: ids below `vocabulary`, the same for the same seed."""

    def __init__(self, vocabulary: int, seed: int = 0) -> None:
        self._ids, self._seed = range(vocabulary), seed

    def make(self, ask: Ask, number: int) -> list[int]:
        shared = Random(f"{self._seed} {ask.prefix}").choices(self._ids, k=ask.prefix_tokens)
        own = ask.prompt_tokens - ask.prefix_tokens
        return shared + Random(f"{self._seed} {number}").choices(self._ids, k=own)
