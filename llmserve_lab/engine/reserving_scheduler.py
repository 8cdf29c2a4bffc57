"""Memory as it was before PagedAttention: each request's longest length, reserved in one piece."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llmserve_lab.engine.own_allocator import MakeAllocator, OwnAllocator
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled, Scheduler
from llmserve_lab.kv_cache import ContiguousAllocator, MemoryMap, OutOfMemoryError, Region
from llmserve_lab.kv_cache.contiguous import FIRST_FIT


class ReservingScheduler(Scheduler):
    """First come, first served, each with a reservation in adjacent blocks; none is ever preempted.

    fit: see `ContiguousAllocator`. to_model_len: reserve `max_model_len` tokens for everybody, as
    engines did that did not know better; else prompt and `max_tokens`. allocator: a class of your
    own that places the reservations in place of `fit`, see `SlotAllocator`.

    memory: the allocator. maps: the memory after each step, with what ended in it. refusals: for
    each of these steps, why the next request could not be admitted, or None. refused: the latest.

    Raises:
        TypeError, ValueError: an allocator that cannot be asked, or one beside a `fit`. While
            serving: it gave out slots that are not there, or another's.
    """

    can_fork = False  # nothing is shared

    def __init__(
        self,
        fit: str = FIRST_FIT,
        to_model_len: bool = True,
        allocator: MakeAllocator | None = None,
    ) -> None:
        super().__init__()
        if allocator is not None and fit != FIRST_FIT:
            raise ValueError("An allocator of your own decides the fit: leave fit out.")
        self.fit, self.to_model_len, self.allocator = fit, to_model_len, allocator
        self.maps: list[MemoryMap] = []
        self.refusals: list[OutOfMemoryError | None] = []
        self.refused: OutOfMemoryError | None = None

    def bind(self, *args: Any, **options: Any) -> None:
        super().bind(*args, **options)
        if self.pool.enable_prefix_caching:
            raise ValueError("Reservations share nothing: set enable_prefix_caching=False.")
        self.memory = self._empty(self.pool.num_blocks * self.pool.block_size)

    def schedule(self) -> list[Scheduled]:
        self.refused = None
        return super().schedule()

    def commit(self, batch: list[Scheduled]) -> None:
        super().commit(batch)
        for item in batch:
            self.memory.append(item.request.request_id, item.num_tokens)
        self.maps.append(self.memory.snapshot())
        self.refusals.append(self.refused)

    def accept(self, request: Request, num_tokens: int) -> None:
        super().accept(request, num_tokens)
        self.memory.append(request.request_id, num_tokens)
        self.maps[-1] = self.memory.snapshot()

    def _empty(self, num_slots: int) -> ContiguousAllocator:
        if self.allocator is not None:
            return OwnAllocator(num_slots, self.allocator)
        return ContiguousAllocator(num_slots, self.fit)

    def _place(self, request: Request) -> bool:
        size = self.pool.block_size
        length = self.pool.blocks_for(self._reserved_tokens(request)) * size
        try:
            region = self.memory.allocate(request.request_id, length)
        except OutOfMemoryError as error:
            self.refused = error
            return False
        self._hold(request, region)
        return True

    def _hold(self, request: Request, region: Region) -> None:
        """Let a request have the blocks that its region covers."""
        size = self.pool.block_size
        if region.start % size:
            raise ValueError(
                f"Slot {region.start} is not the first of a block: all reservations are multiples "
                f"of {size} slots, so place them side by side."
            )
        request.block_table = list(range(region.start // size, region.stop // size))
        self.pool.share(request.block_table)

    def _reserved_tokens(self, request: Request) -> int:
        longest = self.limits.max_model_len if self.to_model_len else self.final_tokens(request)
        return min(longest, self.memory.num_slots)

    def start_over(self, requests: Iterable[Request]) -> None:
        super().start_over(requests)
        self.memory = self._empty(self.memory.num_slots)

    def _release(self, request: Request) -> None:
        if request.block_table:
            self.memory.free(request.request_id)
        super()._release(request)
