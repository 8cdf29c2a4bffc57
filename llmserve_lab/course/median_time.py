"""How long a small piece of work takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

ROUNDS = 30


def median_ms(
    work: Callable[[], Any], rounds: int = ROUNDS, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Median milliseconds of `work()`, after one call that warms up. The work must be done when it
    returns: on a GPU it has to synchronize."""
    work()
    times = []
    for _ in range(rounds):
        started = clock()
        work()
        times.append(1000 * (clock() - started))
    return median(times)
