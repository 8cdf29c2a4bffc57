"""What the parts of a step cost, and how that is found from measured steps."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmserve_lab.engine.step_load import StepLoad

SHORTEST = 1e-9  # seconds; a clock shows no less
KNOTS = (*range(1, 17), 20, 24, 32, 40, 48, 56)  # tokens of a small step
LARGE = 64  # tokens from which on a step's time is linear in them
CAUTION = 0.01  # weight of "no correction" against one measurement


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a step, per unit. overhead: per step. token: through the linear layers. sequence:
    per request with more than one token. sample: per new token (output layer and sampler), with
    what a request with one token costs besides. decode_kv: per cached token that a request with
    one token attends to. prefill_pair: per (query, key) pair of longer chunks.

    small: (tokens, seconds) in ascending order: what a step of so many tokens takes beyond that, or
    less: a product with one row, or with a few, is computed another way than a large one.
    Linear between them, and nothing from 64 tokens on.
    """

    overhead: float
    token: float
    sequence: float
    sample: float
    decode_kv: float
    prefill_pair: float
    small: tuple[tuple[int, float], ...] = ()

    def seconds(self, load: StepLoad) -> float:
        """How long a step takes."""
        linear = (
            self.overhead
            + self.token * load.tokens
            + self.sequence * load.chunks
            + self.sample * load.samples
            + self.decode_kv * load.decode_kv
            + self.prefill_pair * (load.pairs - load.decode_kv)
        )
        return max(SHORTEST, linear + self._correction(load.tokens))

    def _correction(self, tokens: int) -> float:
        if not self.small or tokens >= LARGE:
            return 0.0
        after = bisect_right(self.small, (tokens, math.inf))
        low, below = self.small[max(after - 1, 0)]
        high, above = self.small[after] if after < len(self.small) else (LARGE, 0.0)
        if tokens <= low:
            return below
        return below + (above - below) * (tokens - low) / (high - low)


def units(load: StepLoad) -> tuple[float, ...]:
    """What a step has of each cost, in the order of `Costs`."""
    pairs = load.pairs - load.decode_kv
    return 1, load.tokens, load.chunks, load.samples, load.decode_kv, pairs


def fit(loads: Sequence[StepLoad], seconds: Sequence[float]) -> Costs:
    """The costs, none below zero, with the smallest relative error (weighted least squares; a cost
    that would be negative is left out and the others are fitted again). Corrections of small steps
    may have any sign, and are zero where the measurements ask for none.

    Raises:
        ValueError: fewer measurements than costs.
    """
    import numpy as np

    linear = np.array([units(load) for load in loads], dtype=np.float64)
    count = linear.shape[1] if len(linear) else len(units(StepLoad.decode(1, 1)))
    if len(linear) < count:
        raise ValueError(f"{count} costs need as many measurements, not {len(linear)}.")
    times = np.maximum(np.array(seconds, dtype=np.float64), SHORTEST)
    tokens = linear[:, 1]
    knots = [knot for knot in KNOTS if knot in tokens]
    hats = [np.interp(tokens, [*knots, LARGE], row) for row in np.eye(len(knots), len(knots) + 1)]
    rows = np.column_stack([linear, *hats]) / times[:, None]
    cautious = np.zeros((len(knots), rows.shape[1]))
    for index, knot in enumerate(knots):
        cautious[index, count + index] = CAUTION / np.median(times[tokens == knot])
    target = np.concatenate([np.ones(len(rows)), np.zeros(len(knots))])
    found = _least_squares(np.vstack([rows, cautious]), target, count)
    corrections = tuple(zip(knots, found[count:], strict=True))
    overhead, token, sequence, sample, decode_kv, prefill_pair = found[:count]
    return Costs(overhead, token, sequence, sample, decode_kv, prefill_pair, corrections)


def _least_squares(rows: Any, target: Any, count: int) -> list[float]:
    """The first `count` of what is found are not below zero."""
    import numpy as np

    scale = np.abs(rows).max(axis=0)
    scale[scale == 0] = 1.0
    kept = list(range(rows.shape[1]))
    while True:
        found = np.zeros(rows.shape[1])
        part = np.linalg.lstsq((rows / scale)[:, kept], target, rcond=None)[0]
        found[kept] = part / scale[kept]
        worst = int(found[:count].argmin())
        if found[worst] >= 0:
            return [float(value) for value in found]
        kept.remove(worst)
