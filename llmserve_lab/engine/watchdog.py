"""Notices a scheduler that runs in circles."""

from __future__ import annotations

from llmserve_lab.engine.errors import SchedulerError
from llmserve_lab.engine.request import Request

PATIENCE = 8  # steps that may compute nothing new, beside those that compute lost tokens again


class Watchdog:
    """Counts the steps in which no request gets further than it ever was.

    What a preemption lost may be computed again, at worst one token per step; more steps than
    that, and the scheduler loses tokens as fast as it computes them.
    """

    def __init__(self) -> None:
        self._idle_steps = 0
        self._again: dict[Request, int] = {}  # tokens that those steps may compute again

    def reset(self) -> None:
        """A request came or went: what follows is a new situation."""
        self._idle_steps = 0
        self._again.clear()

    def note(self, batch: list, waiting: dict[str, Request]) -> None:
        """Look at a step before it runs.

        Raises:
            SchedulerError: it goes on without progress for too long.
        """
        ahead = False
        for request, start, num_tokens in batch:
            if start + num_tokens > request.num_reached_tokens:
                request.num_reached_tokens = start + num_tokens
                ahead = True
        if ahead:
            self.reset()
            return
        self._idle_steps += 1
        self._again |= {item.request: item.request.num_reached_tokens for item in batch}
        if self._idle_steps > PATIENCE + sum(self._again.values()):
            steps, names = self._idle_steps, ", ".join(list(waiting)[:3])
            self.reset()
            raise SchedulerError(
                f"For {steps} steps the scheduler has brought no request any further ({names}): "
                "it must let one run until it ends."
            )
