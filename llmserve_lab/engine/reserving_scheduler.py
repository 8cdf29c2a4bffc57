"""Memory as it was before PagedAttention: each request's longest length, reserved in one piece."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled, Scheduler
from llmserve_lab.kv_cache import ContiguousAllocator, MemoryMap, OutOfMemoryError
from llmserve_lab.kv_cache.contiguous import FIRST_FIT


class ReservingScheduler(Scheduler):
    """First come, first served, each with a reservation in adjacent blocks; none is ever preempted.

    fit: see `ContiguousAllocator`. to_model_len: reserve `max_model_len` tokens for everybody, as
    engines did that did not know better; else prompt and `max_tokens`.

    memory: the allocator. maps: the memory after each step. refused: why the next request could
    not be admitted in the latest step, or None.
    """

    can_fork = False  # nothing is shared

    def __init__(self, fit: str = FIRST_FIT, to_model_len: bool = True) -> None:
        super().__init__()
        self.fit, self.to_model_len = fit, to_model_len
        self.maps: list[MemoryMap] = []
        self.refused: OutOfMemoryError | None = None

    def bind(self, *args: Any, **options: Any) -> None:
        super().bind(*args, **options)
        if self.pool.enable_prefix_caching:
            raise ValueError("Reservations share nothing: set enable_prefix_caching=False.")
        self.memory = ContiguousAllocator(self.pool.num_blocks * self.pool.block_size, self.fit)

    def schedule(self) -> list[Scheduled]:
        self.refused = None
        return super().schedule()

    def commit(self, batch: list[Scheduled]) -> None:
        super().commit(batch)
        for item in batch:
            self.memory.append(item.request.request_id, item.num_tokens)
        self.maps.append(self.memory.snapshot())

    def _place(self, request: Request) -> bool:
        size = self.pool.block_size
        length = self.pool.blocks_for(self._reserved_tokens(request)) * size
        try:
            region = self.memory.allocate(request.request_id, length)
        except OutOfMemoryError as error:
            self.refused = error
            return False
        request.block_table = list(range(region.start // size, region.stop // size))
        self.pool.share(request.block_table)
        return True

    def _reserved_tokens(self, request: Request) -> int:
        longest = self.limits.max_model_len if self.to_model_len else self._final_tokens(request)
        return min(longest, self.memory.num_slots)

    def start_over(self, requests: Iterable[Request]) -> None:
        super().start_over(requests)
        self.memory = ContiguousAllocator(self.memory.num_slots, self.fit)

    def _release(self, request: Request) -> None:
        if request.block_table:
            self.memory.free(request.request_id)
        super()._release(request)
