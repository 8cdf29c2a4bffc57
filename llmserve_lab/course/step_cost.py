"""What a decode step takes, in two parts: a fixed one, and one for each request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class StepCost:
    """A step of B requests takes `fixed + each * B` seconds: Hockney's two parameters of a vector
    machine (Hockney & Jesshope 1981), with a batch in the place of a vector."""

    fixed: float
    each: float

    def seconds(self, batch_size: float) -> float:
        """A step, and so every request's time per output token."""
        return self.fixed + self.each * batch_size

    def tokens_per_second(self, batch_size: float) -> float:
        """Of all requests together."""
        return batch_size / self.seconds(batch_size)

    @property
    def most(self) -> float:
        """Tokens/s that no batch reaches: each token takes its own part at least."""
        return 1 / self.each if self.each else inf

    @property
    def knee(self) -> float:
        """The batch size at which both parts are equal: half of `most`, and a doubling of the batch
        gives four thirds of the tokens/s. Hockney's n-half."""
        return self.fixed / self.each if self.each else inf

    def largest(self, tpot: float) -> int:
        """The largest batch whose steps take at most `tpot` seconds; 0 where none does."""
        if not self.each:
            raise ValueError("With no cost for each request, no time per token limits the batch.")
        return max(0, int((tpot - self.fixed) / self.each + 1e-9))


def fit_step_cost(sizes: Sequence[int], seconds: Sequence[float]) -> StepCost:
    """The line with the smallest relative error through (batch size, seconds), no part below zero.

    Raises:
        ValueError: fewer than two different batch sizes.
    """
    import numpy as np

    if len(set(sizes)) < 2:
        raise ValueError("Two parts need steps of two batch sizes or more.")
    times = np.array(seconds, dtype=np.float64)
    each, fixed = np.polyfit(sizes, times, 1, w=1 / times)
    if each < 0:
        return StepCost(float(times.mean()), 0.0)
    if fixed < 0:
        return StepCost(0.0, float(np.mean(times / np.array(sizes))))
    return StepCost(float(fixed), float(each))
