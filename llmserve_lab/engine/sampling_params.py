"""How a request's tokens are chosen, and when it ends. Names as in vLLM's offline API."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from llmserve_lab.engine.checks import require_count, require_number

LARGEST_SEED = 2**63 - 1
GREEDY_BELOW = 1e-5  # temperatures so low that dividing by them would overflow


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """One request's settings.

    n: how many continuations of the prompt.
    temperature: 0 is greedy; logits are divided by it. top_k: keep the k likeliest tokens, 0 all.
    top_p: keep the likeliest tokens that together reach this probability (Holtzman et al. 2020).
    min_p: keep tokens with at least this share of the likeliest one's probability.
    max_tokens, min_tokens: output tokens. stop: strings that end the text and are left out of it.
    stop_token_ids: tokens that end it. ignore_eos: go on past the model's end-of-text token.
    seed: the same text each time, whatever else is in the batch.

    Raises:
        ValueError, TypeError: a field that makes no sense, by name.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 16
    min_tokens: int = 0
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        require_count("n", self.n, at_least=1)
        require_number("temperature", self.temperature, 0.0, math.inf)
        require_number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise ValueError("top_p must be above 0: it would leave no token to choose from.")
        require_number("min_p", self.min_p, 0.0, 1.0)
        require_count("top_k", self.top_k, at_least=-1)
        require_count("max_tokens", self.max_tokens, at_least=1)
        require_count("min_tokens", self.min_tokens, at_least=0)
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens ({self.min_tokens}) is above max_tokens ({self.max_tokens})."
            )
        if not isinstance(self.ignore_eos, bool):
            raise TypeError(f"ignore_eos must be True or False, not {self.ignore_eos!r}.")
        if self.seed is not None:
            require_count("seed", self.seed, at_least=0, at_most=LARGEST_SEED)
        self._set("stop", _strings(self.stop))
        self._set("stop_token_ids", _token_ids(self.stop_token_ids))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    def continuation(self, index: int) -> SamplingParams:
        """The settings of one of `n` continuations: its own seed, and n = 1."""
        seed = None if self.seed is None else (self.seed + index) % (LARGEST_SEED + 1)
        return replace(self, n=1, seed=seed)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return self.stop  # type: ignore[return-value]


def _strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    if stop is not None and not isinstance(stop, (str, Sequence)):
        raise TypeError(f"stop must be a string or several, not {stop!r}.")
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"stop must be a string or several, not {string!r}.")
        if not string:
            raise ValueError("stop must not hold an empty string: it would end every request.")
    return strings


def _token_ids(ids: Sequence[int] | None) -> tuple[int, ...]:
    if ids is not None and not isinstance(ids, (Sequence, Set)):
        raise TypeError(f"stop_token_ids must be a list of token ids, not {ids!r}.")
    for token in ids or ():
        require_count("stop_token_ids", token, at_least=0)
    return tuple(int(token) for token in ids or ())
