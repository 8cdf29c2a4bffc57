"""Exercises whose answer is a class that places reservations: it is asked again and again, and each
answer is held against what must be true of the memory then."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.checks.grader import Answer, Arguments, CheckFailed, Grader, told
from llmserve_lab.course.checks.result import describe
from llmserve_lab.kv_cache import ContiguousAllocator, OutOfMemoryError, Region

ALLOCATE, FREE = "allocate", "free"
Call = tuple[Any, ...]  # ("allocate", owner, length) or ("free", owner)
SHOWN_CALLS = 8  # of those before the one that failed


class AllocatorGrader(Grader):
    """A case is `num_slots` and a list of `calls`. What must hold after each: a place lies inside
    the memory and overlaps no other, it is the first hole that is long enough, None comes only
    where there is none, and a call that is refused has changed nothing."""

    def _require_answer(self, answer: Any) -> None:
        __tracebackhide__ = True
        if not callable(answer):
            raise CheckFailed(
                f"Exercise {self.key}: hand over your class itself, as in "
                f"check.{self.name}({self.reference.__name__}); got {describe(answer)}."
            )

    def _try(self, answer: Answer, arguments: Arguments) -> None:
        __tracebackhide__ = True
        for lead in ("", "the first object is right, but in a second one, "):
            self._play(answer, arguments["num_slots"], arguments["calls"], lead)

    def _play(self, answer: Answer, num_slots: int, calls: list[Call], lead: str) -> None:
        __tracebackhide__ = True
        memory, books = self._make(answer, num_slots), ContiguousAllocator(num_slots)
        for place, call in enumerate(calls):
            before = f"{lead}{_after(calls[:place])}{_call(call)}"
            got = self._ask(memory, call, num_slots, before)
            if fault := self._fault(books, call, got):
                self._fail({"num_slots": num_slots}, f"{before} {_outcome(got)}, {fault}")

    def _make(self, answer: Answer, num_slots: int) -> Any:
        __tracebackhide__ = True
        try:
            memory = answer(num_slots)
        except NotImplementedError:
            raise
        except Exception as error:
            self._fail({"num_slots": num_slots}, f"making one raised {told(error)}", error)
        if not all(callable(getattr(type(memory), name, None)) for name in (ALLOCATE, FREE)):
            fault = f"expected an object with {ALLOCATE} and {FREE}, got {describe(memory)}"
            self._fail({"num_slots": num_slots}, fault)
        return memory

    def _ask(self, memory: Any, call: Call, num_slots: int, told_as: str) -> Any:
        """What the call returned, or the ValueError or KeyError that it raised."""
        __tracebackhide__ = True
        method, *arguments = call
        try:
            return getattr(memory, method)(*arguments)
        except NotImplementedError:
            raise
        except (ValueError, KeyError) as error:
            return error
        except Exception as error:
            self._fail({"num_slots": num_slots}, f"{told_as} raised {told(error)}", error)

    def _fault(self, books: ContiguousAllocator, call: Call, got: Any) -> str | None:
        """What is wrong with the answer; the books are kept."""
        method, owner = call[0], call[1]
        held = [region for region in books.snapshot().regions if not region.free]
        known = any(region.owner == owner for region in held)
        if method == FREE:
            return _free_fault(books, owner, known, got)
        if known:
            wanted = f"expected a ValueError: {owner!r} has a reservation already"
            return None if isinstance(got, ValueError) else wanted
        return self._place_fault(books, held, owner, call[2], got)

    def _place_fault(
        self, books: ContiguousAllocator, held: list[Region], owner: str, length: int, got: Any
    ) -> str | None:
        try:
            first = books.allocate(owner, length).start
        except OutOfMemoryError:
            free = books.snapshot().largest_free_run
            return None if got is None else f"expected None: no hole is longer than {free}"
        if type(got) is not int:
            return f"expected {first}: {length} adjacent slots are free from there on"
        return _clash(held, got, length, books.num_slots) or (
            None if got == first else f"expected {first}, the first hole that is long enough"
        )


def _free_fault(books: ContiguousAllocator, owner: str, known: bool, got: Any) -> str | None:
    if not known:
        wanted = f"expected a KeyError: {owner!r} has no reservation"
        return None if isinstance(got, KeyError) else wanted
    books.free(owner)
    is_error = isinstance(got, Exception)
    return f"expected no error: {owner!r} has a reservation" if is_error else None


def _clash(held: list[Region], start: int, length: int, num_slots: int) -> str | None:
    if start < 0 or start + length > num_slots:
        return f"expected slots from 0 to {num_slots - 1}"
    for region in held:
        if region.start < start + length and start < region.stop:
            taken = f"{region.start} to {region.stop - 1} belong to {region.owner!r}"
            return f"expected free slots: {taken}"
    return None


def _after(calls: list[Call]) -> str:
    if not calls:
        return ""
    cut = "... " if len(calls) > SHOWN_CALLS else ""
    return f"after {cut}{', '.join(map(_call, calls[-SHOWN_CALLS:]))}: "


def _call(call: Call) -> str:
    method, *arguments = call
    return f"{method}({', '.join(map(repr, arguments))})"


def _outcome(got: Any) -> str:
    if isinstance(got, Exception):
        return f"raised {type(got).__name__}"
    return f"returned {describe(got) if type(got) not in (int, type(None)) else got}"
