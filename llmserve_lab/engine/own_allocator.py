"""An allocator of contiguous slots that the caller brings along, such as a learner's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from llmserve_lab.kv_cache import ContiguousAllocator, Region


class SlotAllocator(Protocol):
    """Places reservations in `num_slots` slots. How it is made: `MyAllocator(num_slots)`."""

    def allocate(self, owner: str, length: int) -> int | None:
        """Reserve `length` adjacent slots; the first of them, or None where there is no room."""

    def free(self, owner: str) -> None:
        """Give back what the owner holds."""


MakeAllocator = Callable[[int], SlotAllocator]


class OwnAllocator(ContiguousAllocator):
    """Asks the caller's allocator for every place, and keeps books of its own by which it checks
    the answers."""

    def __init__(self, num_slots: int, make: MakeAllocator) -> None:
        super().__init__(num_slots)
        self.own = require_allocator(make, num_slots)

    def free(self, request_id: str) -> None:
        super().free(request_id)
        self.own.free(request_id)

    def compact(self) -> list[tuple[Region, Region]]:
        raise NotImplementedError("An allocator of one's own is not told that its regions moved.")

    def _choose(self, request_id: str, length: int) -> int:
        start = self.own.allocate(request_id, length)
        if start is None:
            raise self._no_room(length)
        self._require_free(request_id, start, length)
        return start

    def _require_free(self, request_id: str, start: Any, length: int) -> None:
        if type(start) is not int:
            raise TypeError(
                f"allocate({request_id!r}, {length}) must return a slot or None, not {start!r:.60}."
            )
        stop = start + length
        if start < 0 or stop > self.num_slots:
            raise ValueError(
                f"allocate({request_id!r}, {length}) returned slot {start}: slots {start} to "
                f"{stop - 1} are not all in a memory of {self.num_slots}."
            )
        for region in self._regions:
            if not region.free and region.start < stop and start < region.stop:
                raise ValueError(
                    f"allocate({request_id!r}, {length}) returned slot {start}, but slots "
                    f"{region.start} to {region.stop - 1} belong to request {region.owner!r}."
                )


def require_allocator(make: Any, num_slots: int) -> SlotAllocator:
    """Make an allocator, and raise unless it can be asked.

    Raises:
        TypeError: `make` cannot be called, or what it makes lacks a method.
    """
    if not callable(make):
        raise TypeError(
            "allocator must be the class itself, such as allocator=MyAllocator, or a function that "
            f"makes one for a number of slots; not {make!r:.60}."
        )
    own: SlotAllocator = make(num_slots)
    missing = [name for name in ("allocate", "free") if not callable(getattr(own, name, None))]
    if missing:
        raise TypeError(f"The allocator {own!r:.60} has no method {missing[0]}.")
    return own
