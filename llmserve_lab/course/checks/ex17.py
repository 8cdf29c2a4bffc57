"""Exercise 17: two kinds of waste, and a first-fit allocator from its parts."""

from __future__ import annotations

from llmserve_lab.course.checks import ex17_cases as cases
from llmserve_lab.course.checks import ex17_mutants as mutants
from llmserve_lab.course.checks.allocator import AllocatorGrader
from llmserve_lab.course.checks.ex17_allocators import ALLOCATORS
from llmserve_lab.course.checks.grader import Grader
from llmserve_lab.course.checks.holes import Holes
from llmserve_lab.course.checks.result import Maybe, Number, Record

Hole = tuple[int, int]  # start, length


def waste(length: int, used: int, final: int) -> dict[str, int]:
    return {"later": final - used, "never": length - final}


def external_fragmentation(holes: list[Hole]) -> float:
    lengths = [length for _, length in holes]
    return 1 - max(lengths) / sum(lengths) if lengths else 0.0


def first_fit(holes: list[Hole], length: int) -> int | None:
    for index, (_, room) in enumerate(holes):
        if room >= length:
            return index
    return None


def take(holes: list[Hole], index: int, length: int) -> list[Hole]:
    start, room = holes[index]
    rest = [(start + length, room - length)] if room > length else []
    return holes[:index] + rest + holes[index + 1 :]


def give_back(holes: list[Hole], start: int, length: int) -> list[Hole]:
    merged: list[Hole] = []
    for first, room in sorted([*holes, (start, length)]):
        if merged and sum(merged[-1]) == first:
            merged[-1] = (merged[-1][0], merged[-1][1] + room)
        else:
            merged.append((first, room))
    return merged


class FirstFit:
    def __init__(self, num_slots: int) -> None:
        self.holes: list[Hole] = [(0, num_slots)]
        self.reserved: dict[str, Hole] = {}

    def allocate(self, owner: str, length: int) -> int | None:
        if owner in self.reserved:
            raise ValueError(f"{owner!r} has a reservation already")
        index = first_fit(self.holes, length)
        if index is None:
            return None
        start = self.holes[index][0]
        self.holes = take(self.holes, index, length)
        self.reserved[owner] = (start, length)
        return start

    def free(self, owner: str) -> None:
        self.holes = give_back(self.holes, *self.reserved.pop(owner))


SLOTS = Number("slots", whole=True)
GRADERS = (
    Grader(
        key="17.1",
        name="ex17_waste",
        reference=waste,
        shape=Record({"later": SLOTS, "never": SLOTS}),
        cases=cases.reservations,
        hints=(
            "Two of the three numbers say how many slots ever hold a token, and how many do now.",
            "What is still to come lies between used and final; the rest up to length stays empty.",
            "later is final - used, never is length - final.",
        ),
        mutants=mutants.WASTE,
    ),
    Grader(
        key="17.2",
        name="ex17_external_fragmentation",
        reference=external_fragmentation,
        shape=Number(),
        cases=cases.memories,
        hints=(
            "If all that is free lies in one piece, nothing is fragmented: the result is 0.",
            "Compare the longest hole with the sum of all. And if there is no hole?",
            "1 - max(lengths) / sum(lengths), or 0.0 where lengths is empty.",
        ),
        mutants=mutants.FRAGMENTATION,
    ),
    Grader(
        key="17.3",
        name="ex17_first_fit",
        reference=first_fit,
        shape=Maybe(Number("(an index)", whole=True)),
        cases=cases.searches,
        hints=(
            "Go through the holes in their order. When do you stop?",
            "The first whose length is at least what is wanted; return its index, not its start.",
            "if room >= length: return index, inside the loop; return None after it.",
        ),
        mutants=mutants.FIRST_FIT,
    ),
    Grader(
        key="17.4",
        name="ex17_take",
        reference=take,
        shape=Holes(),
        cases=cases.takings,
        hints=(
            "Slots are taken from the front of the hole. What is its start then, and its length?",
            "The others stay as they are. And a hole that is filled exactly is no hole any more.",
            "start, room = holes[index]; a new list of holes[:index], (start + length, room - "
            "length) if that is not empty, and holes[index + 1:].",
        ),
        mutants=mutants.TAKE,
    ),
    Grader(
        key="17.5",
        name="ex17_give_back",
        reference=give_back,
        shape=Holes(),
        cases=cases.returns,
        hints=(
            "Where in the list does the new hole belong, and which two could it touch?",
            "Two holes touch where one's start + length is the other's start. Sort all of them, "
            "then go through and let each one that touches the last grow that last one.",
            "for first, room in sorted([*holes, (start, length)]): if merged and sum(merged[-1]) "
            "== first, replace merged[-1] by (its start, its length + room), else append.",
        ),
        mutants=mutants.GIVE_BACK,
    ),
    AllocatorGrader(
        key="17.6",
        name="ex17_allocator",
        reference=FirstFit,
        shape=Maybe(Number("(a slot)", whole=True)),
        cases=cases.runs,
        hints=(
            "Which two things must the object remember between calls?",
            "The holes, and each owner's start and length. allocate uses first_fit and take, free "
            "uses give_back; who holds something already, or nothing, is refused first.",
            "allocate: ValueError if owner in self.reserved; index = first_fit(...); None if there "
            "is none; keep the start, then take. free: give_back(self.holes, "
            "*self.reserved.pop(owner)).",
        ),
        mutants=ALLOCATORS,
    ),
)
