"""Admission by priority, in which nobody waits for ever."""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from llmserve_lab.engine.checks import require_count, require_number
from llmserve_lab.engine.preemption import Recompute
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.request_queue import RequestQueue
from llmserve_lab.engine.scheduler import MAX_PREEMPTIONS, Scheduler

Key = tuple[float, float, int]
STALE_PER_LIVE = 2  # entries of the heap for each waiting request, above which it is rebuilt
SECONDS_PER_LEVEL = 10.0
LARGEST_PRIORITY = 2**31 - 1


def priority_per_prompt(priority: Any, count: int, scheduler: Scheduler) -> list[int]:
    """One priority for all prompts, or one for each; 0 if none was given.

    Raises:
        ValueError: another number of them, or a scheduler to which they mean nothing.
        TypeError: not whole numbers.
    """
    if priority is None:
        return [0] * count
    if not scheduler.honours_priority:
        raise ValueError(
            f"{type(scheduler).__name__} ignores priority: use LLM(..., "
            "scheduler=PriorityScheduler()), or set honours_priority = True in your own."
        )
    listed = list(priority) if isinstance(priority, (list, tuple)) else [priority] * count
    if len(listed) != count:
        raise ValueError(f"{count} prompts came with {len(listed)} priorities; give one each.")
    for value in listed:
        require_count("priority", value, at_least=-LARGEST_PRIORITY, at_most=LARGEST_PRIORITY)
    return [int(value) for value in listed]


class PriorityQueue(RequestQueue):
    """Smallest key first; O(log n) per request. A removed request stays in the heap as a stale
    entry until it comes up or the heap is rebuilt. Keys must differ and must not change."""

    def __init__(self, key: Callable[[Request], Key]) -> None:
        super().__init__()
        self._key = key
        self._heap: list[tuple[Key, Request]] = []

    def append(self, request: Request) -> None:
        super().append(request)
        heapq.heappush(self._heap, (self._key(request), request))

    def appendleft(self, request: Request) -> None:
        """Put a request where its key says: that of a preempted one has not changed."""
        self.append(request)

    def popleft(self) -> Request:
        request = self[0]
        heapq.heappop(self._heap)
        super().remove(request)
        return request

    def remove(self, request: Request) -> None:
        super().remove(request)
        if len(self._heap) > STALE_PER_LIVE * (len(self) + 1):
            self._heap = [entry for entry in self._heap if entry[1] in self]
            heapq.heapify(self._heap)

    def clear(self) -> None:
        super().clear()
        self._heap.clear()

    def __getitem__(self, index: int) -> Request:
        if index != 0 or not self:
            return super().__getitem__(index)
        while self._heap[0][1] not in self:
            heapq.heappop(self._heap)
        return self._heap[0][1]

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._requests, key=self._key))


class PriorityScheduler(Scheduler):
    """Like `Scheduler`, but smaller `Request.priority` first, as in vLLM; equal ones in the order
    of their arrival. When blocks run out, the running request that ranks last gives way.

    A request of priority p ranks like one of priority 0 that arrives p x `aging` seconds later. So
    whoever waits long enough comes first: nobody starves. With `aging=None` priority alone decides,
    and a steady stream of urgent requests makes others wait without end.
    """

    honours_priority = True

    def __init__(
        self,
        aging: float | None = SECONDS_PER_LEVEL,
        preemption: Recompute | None = None,
        max_preemptions: int = MAX_PREEMPTIONS,
    ) -> None:
        super().__init__(preemption, max_preemptions)
        if aging is not None:
            require_number("aging", aging, 0.0, math.inf)
        self.aging = aging
        self.waiting = PriorityQueue(self.rank)
        self._numbers = count()

    def add(self, request: Request) -> None:
        request.number = next(self._numbers)
        super().add(request)

    def fork(self, request: Request) -> list[Request]:
        for fork in request.forks:
            fork.number = next(self._numbers)
        return super().fork(request)

    def rank(self, request: Request) -> Key:
        """Smaller goes first. It depends on nothing that changes, so the queue needs no sorting
        while its requests grow older."""
        if self.aging is None:
            return (request.priority, request.arrival, request.number)
        aged = request.arrival + self.aging * request.priority
        return (aged, request.arrival, request.number)

    def _enter(self, request: Request) -> None:
        super()._enter(request)
        insort(self.running, self.running.pop(), key=self.rank)
