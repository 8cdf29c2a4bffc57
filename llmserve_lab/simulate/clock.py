"""The time of a simulation, and of a real run under the same interface."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class WaitingClock(Protocol):
    """Tells the time in seconds, and can wait."""

    def __call__(self) -> float: ...

    def wait_until(self, seconds: float) -> None: ...


class VirtualClock:
    """Moves only when it is told to."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def __call__(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass.

        Raises:
            ValueError: time would run backwards.
        """
        if not seconds >= 0:
            raise ValueError(f"A clock cannot go on by {seconds} seconds.")
        self._seconds += seconds

    def wait_until(self, seconds: float) -> None:
        """Go on to this time; does nothing if it is past."""
        self._seconds = max(self._seconds, seconds)


class WallClock:
    """Waits by sleeping, on the clock that a real engine uses."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock

    def __call__(self) -> float:
        return self._clock()

    def wait_until(self, seconds: float) -> None:
        """Sleep until this time."""
        left = seconds - self._clock()
        if left > 0:
            time.sleep(left)


class CpuClock:
    """CPU time of this process: what a single-threaded engine takes, whatever else the machine is
    busy with. Waits by spending it."""

    def __call__(self) -> float:
        return time.process_time()

    def wait_until(self, seconds: float) -> None:
        """Be busy until this time."""
        while time.process_time() < seconds:
            pass
