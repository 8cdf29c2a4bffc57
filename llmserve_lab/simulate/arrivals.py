"""When requests come: processes that give the arrival times of an open loop, drawn with a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from random import Random
from typing import Protocol

from llmserve_lab.engine.checks import require_number

SLOWEST, FASTEST = 1e-6, 1e9  # requests/s
SMALLEST_SHAPE, LARGEST_SHAPE = 1e-3, 1e6


class Arrivals(Protocol):
    """Gives the seconds between neighbouring requests; the first comes after the first gap."""

    def gaps(self, rng: Random) -> Iterator[float]: ...


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Everything is there at the start, as in offline work."""

    def gaps(self, rng: Random) -> Iterator[float]:
        return repeat(0.0)


@dataclass(frozen=True, slots=True)
class Fixed:
    """`rate` requests per second, evenly spaced."""

    rate: float

    def __post_init__(self) -> None:
        require_number("rate", self.rate, SLOWEST, FASTEST)

    def gaps(self, rng: Random) -> Iterator[float]:
        return repeat(1 / self.rate)


@dataclass(frozen=True, slots=True)
class Gamma:
    """`rate` requests per second on average, with gamma distributed gaps. burstiness: its shape, as
    in vLLM's benchmark: 1 is Poisson, below 1 comes in bursts, above 1 is more even."""

    rate: float
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        require_number("rate", self.rate, SLOWEST, FASTEST)
        require_number("burstiness", self.burstiness, SMALLEST_SHAPE, LARGEST_SHAPE)

    def gaps(self, rng: Random) -> Iterator[float]:
        scale = 1 / (self.rate * self.burstiness)
        while True:
            yield rng.gammavariate(self.burstiness, scale)


@dataclass(frozen=True, slots=True)
class Poisson:
    """`rate` requests per second on average, each independent of the others."""

    rate: float

    def __post_init__(self) -> None:
        require_number("rate", self.rate, SLOWEST, FASTEST)

    def gaps(self, rng: Random) -> Iterator[float]:
        while True:
            yield rng.expovariate(self.rate)
