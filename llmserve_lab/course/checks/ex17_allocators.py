"""Allocators that are wrong, each by the mistake it makes. The grader must reject every one."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.checks.ex17_mutants import (
    Hole,
    Mutants,
    best,
    first,
    joined,
    strictly_longer,
    take,
    worst,
)


class _Memory:
    """A right first-fit allocator; each mutant overrides the part that it gets wrong."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.holes: list[Hole] = [(0, num_slots)]
        self.reserved: dict[str, Hole] = {}

    def allocate(self, owner: str, length: int) -> Any:
        if owner in self.reserved:
            raise ValueError("has one")
        index = self._find(length)
        if index is None:
            return None
        start = self.holes[index][0]
        self.holes = self._cut(index, length)
        self.reserved[owner] = (start, length)
        return start

    def free(self, owner: str) -> Any:
        self.holes = self._join(*self.reserved.pop(owner))

    def _find(self, length: int) -> int | None:
        return first(self.holes, length)

    def _cut(self, index: int, length: int) -> list[Hole]:
        return take(self.holes, index, length)

    def _join(self, start: int, length: int) -> list[Hole]:
        return joined(self.holes, start, length)


class NeverJoins(_Memory):
    def _join(self, start: int, length: int) -> list[Hole]:
        return sorted([*self.holes, (start, length)])


class JoinsBefore(_Memory):
    def _join(self, start: int, length: int) -> list[Hole]:
        return joined(self.holes, start, length, after=False)


class JoinsAfter(_Memory):
    def _join(self, start: int, length: int) -> list[Hole]:
        return joined(self.holes, start, length, before=False)


class JoinsAcross(_Memory):
    def _join(self, start: int, length: int) -> list[Hole]:
        return joined(self.holes, start, length, gap=1)


class Unsorted(_Memory):
    def _join(self, start: int, length: int) -> list[Hole]:
        return [*self.holes, (start, length)]


class BestFit(_Memory):
    def _find(self, length: int) -> int | None:
        return best(self.holes, length)


class WorstFit(_Memory):
    def _find(self, length: int) -> int | None:
        return worst(self.holes, length)


class WantsMore(_Memory):
    def _find(self, length: int) -> int | None:
        return strictly_longer(self.holes, length)


class Overlaps(_Memory):
    """Takes one slot too few out of the hole."""

    def _cut(self, index: int, length: int) -> list[Hole]:
        return take(self.holes, index, length - 1) if length > 1 else self.holes


class LeavesGaps(_Memory):
    """Takes one slot too many out of the hole, where there is one."""

    def _cut(self, index: int, length: int) -> list[Hole]:
        return take(self.holes, index, min(length + 1, self.holes[index][1]))


class FreesTwice(_Memory):
    def free(self, owner: str) -> None:
        if owner in self.reserved:
            super().free(owner)


class KeepsOwners(_Memory):
    """Gives the slots back again each time."""

    def free(self, owner: str) -> None:
        self.holes = self._join(*self.reserved[owner])


class ReservesTwice(_Memory):
    def allocate(self, owner: str, length: int) -> Any:
        self.reserved.pop(owner, None)
        return super().allocate(owner, length)


class TakesWhatThereIs(_Memory):
    """Not all or nothing: a request that does not fit takes the longest hole."""

    def allocate(self, owner: str, length: int) -> Any:
        start = super().allocate(owner, length)
        if start is None and self.holes:
            longest = max(self.holes, key=lambda hole: hole[1])
            self.holes.remove(longest)
            self.reserved[owner] = longest
        return start


class NotesBeforeItFits(_Memory):
    """One that found no place counts as having a reservation."""

    def allocate(self, owner: str, length: int) -> Any:
        start = super().allocate(owner, length)
        if start is None:
            self.reserved[owner] = (0, 0)
        return start


class NoRoomIsAnError(_Memory):
    def allocate(self, owner: str, length: int) -> Any:
        start = super().allocate(owner, length)
        if start is None:
            raise ValueError("no room")
        return start


class ReturnsTheRange(_Memory):
    def allocate(self, owner: str, length: int) -> Any:
        start = super().allocate(owner, length)
        return None if start is None else (start, start + length)


class NeverReuses(_Memory):
    """Only moves a mark forward."""

    def free(self, owner: str) -> None:
        del self.reserved[owner]


class SharedHoles(_Memory):
    """Keeps its holes on the class: the second object finds those of the first."""

    kept: dict[int, list[Hole]]

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.holes = type(self).kept.setdefault(num_slots, self.holes)

    def _cut(self, index: int, length: int) -> list[Hole]:
        type(self).kept[self.num_slots] = super()._cut(index, length)
        return type(self).kept[self.num_slots]


SharedHoles.kept = {}

ALLOCATORS: Mutants = {
    "never joins holes": NeverJoins,
    "joins only with the hole before": JoinsBefore,
    "joins only with the hole after": JoinsAfter,
    "joins across a reserved slot": JoinsAcross,
    "keeps its holes unsorted": Unsorted,
    "best fit": BestFit,
    "the longest hole": WorstFit,
    "wants one slot more": WantsMore,
    "reservations overlap by a slot": Overlaps,
    "reservations leave a slot between them": LeavesGaps,
    "accepts a second free": FreesTwice,
    "gives back what was given back": KeepsOwners,
    "accepts a second reservation": ReservesTwice,
    "takes a part where the whole does not fit": TakesWhatThereIs,
    "notes an owner that found no place": NotesBeforeItFits,
    "raises where there is no room": NoRoomIsAnError,
    "returns a range": ReturnsTheRange,
    "never uses a slot again": NeverReuses,
    "keeps its holes on the class": SharedHoles,
}
