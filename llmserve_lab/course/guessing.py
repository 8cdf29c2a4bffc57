"""Reservations by a guess: less is reserved, and who outgrows it starts over with twice as much."""

from __future__ import annotations

from llmserve_lab.engine.request import Request
from llmserve_lab.engine.reserving_scheduler import ReservingScheduler


class GuessingScheduler(ReservingScheduler):
    """Reserves `guess` tokens for a request, doubled until its known tokens and one more fit. A
    request that fills its reservation gives it back and is computed again in the next one.

    (The paper's "Orca (Pow2)" over-reserves by at most a factor of two as well: Kwon et al. 2023,
    section 6.1. It knows the length.)

    Raises:
        ValueError: a guess below 1.
    """

    def __init__(self, guess: int) -> None:
        super().__init__()
        if guess < 1:
            raise ValueError(f"guess must be at least 1 token, not {guess}.")
        self.guess = guess

    def _reserved_tokens(self, request: Request) -> int:
        length = self.guess
        while length <= len(request.token_ids):
            length *= 2
        return min(length, super()._reserved_tokens(request))

    def _make_room(self, request: Request, count: int) -> bool:
        held = len(request.block_table) * self.pool.block_size
        if request.num_computed_tokens + count <= held:
            return True
        self._preempt(request)
        return False
