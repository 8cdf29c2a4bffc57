"""Wrong answers to exercise 17, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Mutants = dict[str, Callable[..., Any]]
Hole = tuple[int, int]


def _fragmented(holes: list[Hole]) -> float:
    lengths = [length for _, length in holes]
    return 1 - max(lengths) / sum(lengths) if lengths else 0.0


WASTE: Mutants = {
    "the two exchanged": lambda length, used, final: {
        "later": length - final,
        "never": final - used,
    },
    "never counts what is empty now": lambda length, used, final: {
        "later": final - used,
        "never": length - used,
    },
    "later counts to the end of the reservation": lambda length, used, final: {
        "later": length - used,
        "never": length - final,
    },
    "later counts what is used already": lambda length, used, final: {
        "later": final,
        "never": length - final,
    },
    "shares in place of slots": lambda length, used, final: {
        "later": (final - used) / length,
        "never": (length - final) / length,
    },
    "one number": lambda length, used, final: length - used,
}

FRAGMENTATION: Mutants = {
    "the share of the largest": lambda holes: 1 - _fragmented(holes),
    "fails where nothing is free": lambda holes: (
        1 - max(length for _, length in holes) / sum(length for _, length in holes)
    ),
    "all is fragmented where nothing is free": lambda holes: _fragmented(holes) if holes else 1.0,
    "counts holes, not slots": lambda holes: 1 - 1 / len(holes) if holes else 0.0,
    "takes the first for the largest": lambda holes: (
        1 - holes[0][1] / sum(length for _, length in holes) if holes else 0.0
    ),
    "takes the last for the largest": lambda holes: (
        1 - holes[-1][1] / sum(length for _, length in holes) if holes else 0.0
    ),
    "compares the pairs": lambda holes: (
        1 - max(holes)[1] / sum(length for _, length in holes) if holes else 0.0
    ),
    "in percent": lambda holes: 100 * _fragmented(holes),
    "slots in place of a share": lambda holes: (
        sum(length for _, length in holes) - max(length for _, length in holes) if holes else 0
    ),
}


def _fitting(holes: list[Hole], length: int) -> list[int]:
    return [index for index, (_, room) in enumerate(holes) if room >= length]


def strictly_longer(holes: list[Hole], length: int) -> int | None:
    return next((index for index, (_, room) in enumerate(holes) if room > length), None)


def best(holes: list[Hole], length: int) -> int | None:
    return min(_fitting(holes, length), key=lambda index: holes[index][1], default=None)


def worst(holes: list[Hole], length: int) -> int | None:
    return max(_fitting(holes, length), key=lambda index: holes[index][1], default=None)


def first(holes: list[Hole], length: int) -> int | None:
    return next(iter(_fitting(holes, length)), None)


def _in_total(holes: list[Hole], length: int) -> int | None:
    enough = sum(room for _, room in holes) >= length
    found = first(holes, length)
    return 0 if found is None and enough else found


FIRST_FIT: Mutants = {
    "wants one slot more": strictly_longer,
    "best fit": best,
    "the longest hole": worst,
    "the last that fits": lambda holes, length: max(_fitting(holes, length), default=None),
    "the slot in place of the index": lambda holes, length: (
        None if (found := first(holes, length)) is None else holes[found][0]
    ),
    "minus one in place of None": lambda holes, length: (
        -1 if (found := first(holes, length)) is None else found
    ),
    "content with the total": _in_total,
    "looks at the first hole only": lambda holes, length: (
        0 if holes and holes[0][1] >= length else None
    ),
    "compares with the start": lambda holes, length: next(
        (index for index, (start, _) in enumerate(holes) if start >= length), None
    ),
}


def take(holes: list[Hole], index: int, length: int) -> list[Hole]:
    start, room = holes[index]
    rest = [(start + length, room - length)] if room > length else []
    return holes[:index] + rest + holes[index + 1 :]


def _taken_in_place(holes: list[Hole], index: int, length: int) -> list[Hole]:
    holes[:] = take(holes, index, length)
    return holes


def _replaced(holes: list[Hole], index: int, hole: Hole) -> list[Hole]:
    whole = [*holes[:index], hole, *holes[index + 1 :]]
    return [(start, length) for start, length in whole if length]


TAKE: Mutants = {
    "leaves a hole of no slots": lambda holes, index, length: [
        *holes[:index],
        (holes[index][0] + length, holes[index][1] - length),
        *holes[index + 1 :],
    ],
    "takes from the end": lambda holes, index, length: _replaced(
        holes, index, (holes[index][0], holes[index][1] - length)
    ),
    "only moves the start": lambda holes, index, length: [
        (start + length * (place == index), room) for place, (start, room) in enumerate(holes)
    ],
    "takes the whole hole": lambda holes, index, length: holes[:index] + holes[index + 1 :],
    "leaves one slot out": lambda holes, index, length: _replaced(
        holes, index, (holes[index][0] + length + 1, max(0, holes[index][1] - length - 1))
    ),
    "takes from the first hole": lambda holes, index, length: take(
        holes, 0 if holes[0][1] >= length else index, length
    ),
    "loses the holes before": lambda holes, index, length: take(holes, index, length)[index:],
    "puts the rest last": lambda holes, index, length: (
        holes[:index] + holes[index + 1 :] + take(holes[index : index + 1], 0, length)
    ),
    "changes its input": _taken_in_place,
}


def joined(
    holes: list[Hole],
    start: int,
    length: int,
    before: bool = True,
    after: bool = True,
    gap: int = 0,
) -> list[Hole]:
    """A right answer, unless it joins on one side only, or across a `gap` of reserved slots."""
    stop, found = start + length, []
    for first, room in holes:
        if before and 0 <= start - (first + room) <= gap:
            start = first
        elif after and 0 <= first - stop <= gap:
            stop = first + room
        else:
            found.append((first, room))
    return sorted([*found, (start, stop - start)])


def _given_in_place(holes: list[Hole], start: int, length: int) -> list[Hole]:
    holes[:] = joined(holes, start, length)
    return holes


GIVE_BACK: Mutants = {
    "joins nothing": lambda holes, start, length: sorted([*holes, (start, length)]),
    "joins only with the one before": partial(joined, after=False),
    "joins only with the one after": partial(joined, before=False),
    "joins across a reserved slot": partial(joined, gap=1),
    "appends it at the end": lambda holes, start, length: [*holes, (start, length)],
    "joins, and keeps the old one too": lambda holes, start, length: sorted(
        {*holes, *joined(holes, start, length)}
    ),
    "joins them all": lambda holes, start, length: [
        (min([start, *(s for s, _ in holes)]), length + sum(room for _, room in holes))
    ],
    "the length is the end": lambda holes, start, length: [
        (first, first + room) for first, room in joined(holes, start, length)
    ],
    "changes its input": _given_in_place,
}
