"""How a step waits while there is nothing to run yet."""

from __future__ import annotations

import threading


class Doorbell:
    """Waits for a time or for somebody to ring, whichever comes first. A simulator gives the
    engine one whose `wait` moves its virtual clock."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        """Something has come. May be called from any thread."""
        self._rung.set()

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or at once if it rang since the last wait."""
        self._rung.wait(max(0.0, seconds))
        self._rung.clear()
