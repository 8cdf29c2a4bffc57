"""A device that works on its own, as a GPU does: `launch` queues, `synchronize` waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

Work = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One piece of work that has run; times in seconds on the device's clock."""

    launched: float
    started: float
    ended: float


class AsyncDevice:
    """Runs functions one after another, in the order of their launch, on a thread of its own.

    A stand-in for a GPU's stream where there is no GPU: the work is real, and is done while the
    caller goes on. It overlaps with Python only where the work lets go of the interpreter's lock,
    as compiled kernels do.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.kernels: list[Kernel] = []
        self.num_launched = self.num_synchronized = 0
        self._error: BaseException | None = None
        self._queue: SimpleQueue[tuple[float, Work]] = SimpleQueue()
        self._changed = threading.Condition()
        threading.Thread(target=self._work, daemon=True).start()

    @property
    def num_done(self) -> int:
        """Launched functions that have ended."""
        return len(self.kernels)

    def launch(self, work: Work) -> None:
        """Queue a function of no arguments; returns at once."""
        self.num_launched += 1
        self._queue.put((self.clock(), work))

    def synchronize(self) -> None:
        """Wait until everything launched so far has ended.

        Raises:
            Exception: what launched work raised, as late as a GPU tells it.
        """
        self.num_synchronized += 1
        target = self.num_launched
        with self._changed:
            self._changed.wait_for(lambda: self.num_done >= target)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        while True:
            launched, work = self._queue.get()
            started = self.clock()
            try:
                work()
            except BaseException as error:
                self._error = self._error or error
            with self._changed:
                self.kernels.append(Kernel(launched, started, self.clock()))
                self._changed.notify_all()
