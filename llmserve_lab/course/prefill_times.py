"""How long a prompt of n tokens takes in one pass, and the curve a + b n + c n² through that."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from llmserve_lab.engine.checks import require_count

REPEATS = 3


@dataclass(frozen=True, slots=True)
class PrefillCurve:
    """Seconds of a prefill of n tokens: fixed + linear n + quadratic n²."""

    fixed: float
    linear: float
    quadratic: float

    def seconds(self, n: float) -> float:
        return self.fixed + self.linear * n + self.quadratic * n * n

    @property
    def crossover(self) -> float:
        """The length at which the quadratic part takes as long as the linear one; infinite where
        the times show no bend."""
        return self.linear / self.quadratic if self.quadratic else inf


def prefill_seconds(
    model: Any,
    lengths: list[int],
    repeats: int = REPEATS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """The shortest time of one pass over a prompt of each length, the output layer only for its
    last token. model: what `load` returned. Lengths beyond the model's context take as long as any;
    what it would say there means nothing.
    """
    import torch

    for length in lengths:
        require_count("a length", length, at_least=1)
    network = model.model
    wait: Callable[[], Any] = torch.cuda.synchronize if network.device.type == "cuda" else int
    times = dict.fromkeys(lengths, inf)
    for _ in range(repeats):
        for length in lengths:  # in turn, so that a slow moment does not hit one length alone
            ids = torch.zeros((1, length), dtype=torch.int64, device=network.device)
            began = clock()
            with torch.inference_mode():
                network(ids, use_cache=False, logits_to_keep=1)
            wait()
            times[length] = min(times[length], clock() - began)
    return times


def fit_curve(seconds: Mapping[int, float]) -> PrefillCurve:
    """The curve with the smallest relative error, no part of it below zero.

    Raises:
        ValueError: fewer than three lengths.
    """
    import numpy as np

    if len(seconds) < 3:
        raise ValueError(f"A curve needs times at three lengths or more, not at {len(seconds)}.")
    n = np.array(list(seconds), dtype=np.float64)
    rows = np.stack([np.ones_like(n), n, n * n], axis=1)
    rows /= np.array(list(seconds.values()))[:, None]
    scale = rows.max(axis=0)
    parts = np.zeros(3)
    kept = [0, 1, 2]
    while kept:
        found = np.linalg.lstsq((rows / scale)[:, kept], np.ones(len(n)), rcond=None)[0]
        if found.min() >= 0:
            parts[kept] = found / scale[kept]
            break
        kept.pop(int(found.argmin()))
    return PrefillCurve(*parts.tolist())
