"""How long prompts and outputs are: distributions of whole numbers of tokens, drawn with a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from llmserve_lab.engine.checks import require_count, require_number

LARGEST_SPREAD = 10.0  # of a lognormal's logarithm


class Lengths(Protocol):
    """Something to draw a length from."""

    def draw(self, rng: Random) -> int: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    tokens: int

    def __post_init__(self) -> None:
        require_count("tokens", self.tokens, at_least=1)

    def draw(self, rng: Random) -> int:
        return self.tokens


@dataclass(frozen=True, slots=True)
class Uniform:
    """From `low` to `high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        require_count("low", self.low, at_least=1)
        require_count("high", self.high, at_least=self.low)

    def draw(self, rng: Random) -> int:
        return rng.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Mostly short, sometimes very long, as in chats: the logarithm is normal around that of
    `median`, with standard deviation `sigma`. Cut to `low` .. `high`."""

    median: float
    sigma: float
    low: int = 1
    high: int = 100_000

    def __post_init__(self) -> None:
        require_count("low", self.low, at_least=1)
        require_count("high", self.high, at_least=self.low)
        require_number("median", self.median, self.low, self.high)
        require_number("sigma", self.sigma, 0.0, LARGEST_SPREAD)

    def draw(self, rng: Random) -> int:
        length = round(rng.lognormvariate(math.log(self.median), self.sigma))
        return min(max(length, self.low), self.high)


@dataclass(frozen=True, slots=True)
class Empirical:
    """Any of the lengths that were observed, equally likely."""

    observed: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "observed", tuple(self.observed))
        if not self.observed:
            raise ValueError("observed must hold at least one length.")
        for tokens in self.observed:
            require_count("observed", tokens, at_least=1)

    def draw(self, rng: Random) -> int:
        return rng.choice(self.observed)
