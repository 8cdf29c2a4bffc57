"""An asynchronous device on a virtual clock: a timer reads the same there on any machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

LAUNCH_SECONDS = 2.0**-14  # of the host, for one launch; a power of two adds up exactly


@dataclass(frozen=True)
class FakeKernel:
    """Work for a `FakeDevice`. first: seconds more at its first launch, as a compiler takes."""

    seconds: float
    first: float = 0.0

    def __call__(self) -> NoReturn:
        raise TypeError("A kernel runs on a device: give it to device.launch, do not call it.")


@dataclass
class FakeDevice:
    """Has the interface of `AsyncDevice`. Time passes only by launching and synchronizing.

    busy: seconds of work, somebody else's, that are in the queue already.
    """

    busy: float = 0.0
    _now: float = field(default=0.0, repr=False, compare=False)
    _free_at: float = field(default=0.0, repr=False, compare=False)
    _compiled: set[FakeKernel] = field(default_factory=set, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._free_at = self.busy

    def clock(self) -> float:
        """Seconds, as the host sees them."""
        return self._now

    def launch(self, work: FakeKernel) -> None:
        """Queue `work`; its first launch also compiles it, for which the host waits."""
        self._now += LAUNCH_SECONDS
        if work not in self._compiled:
            self._compiled.add(work)
            self._now += work.first
        self._free_at = max(self._free_at, self._now) + work.seconds

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self._now = max(self._now, self._free_at)
