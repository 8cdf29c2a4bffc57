"""Wrong answers to exercise 19, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Mutants = dict[str, Callable[..., Any]]


def _groups(lengths: list[int], slots: int) -> list[list[int]]:
    return [lengths[first : first + slots] for first in range(0, len(lengths), slots)]


STATIC: Mutants = {
    "the longest of all": lambda lengths, slots: max(lengths),
    "one after another": lambda lengths, slots: sum(lengths),
    "a full machine": lambda lengths, slots: -(-sum(lengths) // slots),
    "the mean of a batch": lambda lengths, slots: sum(
        round(sum(g) / len(g)) + (slots < 2) for g in _groups(lengths, slots)
    ),
    "forgets the last, smaller batch": lambda lengths, slots: sum(
        map(max, (g for g in _groups(lengths, slots) if len(g) == slots))
    ),
    "sorts first": lambda lengths, slots: sum(map(max, _groups(sorted(lengths), slots))),
    "the shortest of each batch": lambda lengths, slots: sum(map(min, _groups(lengths, slots))),
    "every slots-th request": lambda lengths, slots: sum(lengths[::slots]),
}


def _places(lengths: list[int], slots: int, choose: Callable[[list[int], int], int]) -> list[int]:
    places = [0] * slots
    for index, length in enumerate(lengths):
        places[choose(places, index)] += length
    return places


def _first_free(lengths: list[int], slots: int) -> int:
    places = [0] * slots
    for length in lengths:
        heapq.heappush(places, heapq.heappop(places) + length)
    return max(places)


CONTINUOUS: Mutants = {
    "still in batches": lambda lengths, slots: sum(map(max, _groups(lengths, slots))),
    "a full machine": lambda lengths, slots: -(-sum(lengths) // slots),
    "in turn": lambda lengths, slots: max(_places(lengths, slots, lambda _, i: i % slots)),
    "the place that is free last": lambda lengths, slots: max(
        _places(lengths, slots, lambda places, _: places.index(max(places)))
    ),
    "the end of the last request": lambda lengths, slots: min(
        _places(lengths, slots, lambda places, _: places.index(min(places)))
    ),
    "the longest first": lambda lengths, slots: _first_free(sorted(lengths)[::-1], slots),
    "the shortest first": lambda lengths, slots: _first_free(sorted(lengths), slots),
    "one step too many": lambda lengths, slots: _first_free(lengths, slots) + 1,
}


def _answer(order: str) -> Callable[..., str]:
    return lambda: order


ORDER: Mutants = {
    "lets in after it has planned": _answer("egaifdchb"),
    "returns before it plans": _answer("chebgaifd"),
    "counts before it has a request": _answer("cheagifdb"),
    "starts the budget in the loop": _answer("chgeaifdb"),
    "takes from the budget first": _answer("chegdaifb"),
    "the part outside its condition": _answer("chegafidb"),
    "returns in the loop": _answer("chegbaifd"),
    "the budget between two lines": _answer("cehgaifdb"),
    "as they were shuffled": _answer("abcdefghi"),
    "a line is missing": _answer("chegaifb"),
}
