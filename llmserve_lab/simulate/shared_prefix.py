"""Prompts that begin alike, such as system prompts and documents asked about more than once."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from llmserve_lab.engine.checks import require_count, require_number
from llmserve_lab.simulate.lengths import Lengths


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Each prompt starts, with probability `share`, with one of `count` prefixes; its own tokens
    follow. tokens: lengths of the prefixes. skew: how much more often the first are chosen than the
    later ones (Zipf's exponent; 0 is equally often)."""

    tokens: Lengths
    count: int = 1
    share: float = 1.0
    skew: float = 0.0

    def __post_init__(self) -> None:
        require_count("count", self.count, at_least=1)
        require_number("share", self.share, 0.0, 1.0)
        require_number("skew", self.skew, 0.0, 10.0)

    def prefixes(self, rng: Random) -> list[tuple[str, int]]:
        """Names and lengths."""
        return [(f"prefix-{index}", self.tokens.draw(rng)) for index in range(self.count)]

    def weights(self) -> list[float]:
        """How often each prefix is chosen, up to a factor."""
        return [(1 + index) ** -self.skew for index in range(self.count)]
