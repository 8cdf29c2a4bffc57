"""Wrong answers to exercise 08, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, median
from typing import Any

Mutants = dict[str, Callable[..., Any]]
Cost = dict[str, float]


def _tpot(cost: Cost, batch: float) -> float:
    return cost["fixed"] + cost["each"] * batch


def _rate(cost: Cost, batch: float) -> float:
    return batch / _tpot(cost, batch)


THROUGHPUT: Mutants = {
    "one user's share": lambda cost, batch: 1 / _tpot(cost, batch),
    "the time of a step": _tpot,
    "a step as for one request": lambda cost, batch: batch / _tpot(cost, 1),
    "no fixed part": lambda cost, batch: 1 / (cost["each"] or 1.0),
    "a fixed part for each request": lambda cost, batch: 1 / (cost["fixed"] + cost["each"]),
    "seconds per token": lambda cost, batch: _tpot(cost, batch) / batch,
}


def _line(steps: list[Any]) -> Cost:
    batch, time = mean(b for b, _ in steps), mean(t for _, t in steps)
    over = sum((b - batch) * (t - time) for b, t in steps)
    each = over / sum((b - batch) ** 2 for b, _ in steps)
    return {"fixed": time - each * batch, "each": each}


def _through_the_ends(steps: list[Any]) -> Cost:
    (first, start), (last, end) = min(steps), max(steps)
    each = (end - start) / (last - first)
    return {"fixed": start - each * first, "each": each}


def _through_zero(steps: list[Any]) -> Cost:
    return {"fixed": 0.0, "each": sum(b * t for b, t in steps) / sum(b * b for b, _ in steps)}


def _sorts(steps: list[Any]) -> Cost:
    steps.sort()
    return _line(steps)


FIT: Mutants = {
    "through the first and the last": _through_the_ends,
    "through zero": _through_zero,
    "the wrong way round": lambda steps: dict(
        zip(("each", "fixed"), _line(steps).values(), strict=True)
    ),
    "the mean time as the fixed part": lambda steps: (
        _line(steps) | {"fixed": mean(t for _, t in steps)}
    ),
    "batch over time": lambda steps: _line([(t, b) for b, t in steps]),
    "the smallest time as the fixed part": lambda steps: (
        _line(steps) | {"fixed": min(t for _, t in steps)}
    ),
    "a tuple": lambda steps: tuple(_line(steps).values()),
    "reorders its input": _sorts,
}


def _walk(cost: Cost, gain: float, most: int, factor: int = 2) -> int | None:
    """The first batch at which `factor` times as many gain less than `gain`."""
    batch = 1
    while batch <= most:
        if _rate(cost, factor * batch) < gain * _rate(cost, batch):
            return batch
        batch *= 2
    return None


def _by_time(cost: Cost, gain: float, most: int) -> int | None:
    sizes = [2**i for i in range(20) if 2**i <= most]
    return next((b for b in sizes if _tpot(cost, 2 * b) > gain * _tpot(cost, b)), None)


def _every_size(cost: Cost, gain: float, most: int) -> int | None:
    sizes = range(1, most + 1)
    return next((b for b in sizes if _rate(cost, 2 * b) < gain * _rate(cost, b)), None)


def _after(cost: Cost, gain: float, most: int) -> int | None:
    found = _walk(cost, gain, most)
    return found and 2 * found


KNEE: Mutants = {
    "one size late": _after,
    "compares times": _by_time,
    "every batch size": _every_size,
    "most when there is none": lambda cost, gain, most: _walk(cost, gain, most) or most,
    "stops before most": lambda cost, gain, most: _walk(cost, gain, most - 1),
    "fixed over each, rounded": lambda cost, gain, most: (
        round(cost["fixed"] / cost["each"]) if cost["each"] else None
    ),
    "the last that pays": lambda cost, gain, most: (_walk(cost, gain, most) or 2 * most) // 2,
    "one request more for twice as many": lambda cost, gain, most: next(
        (
            2**i
            for i in range(20)
            if 2**i <= most and _rate(cost, 2**i + 1) < gain * _rate(cost, 2**i)
        ),
        None,
    ),
}


def _up_to(cost: Cost, limit: float, room: float, strict: bool = False) -> int:
    batch = 0
    while batch < room and (
        _tpot(cost, batch + 1) < limit if strict else _tpot(cost, batch + 1) <= limit
    ):
        batch += 1
    return batch


LARGEST: Mutants = {
    "ignores the room": lambda cost, limit, room: _up_to(cost, limit, 10_000),
    "ignores the promise": lambda cost, limit, room: room,
    "a limit that is met is missed": lambda cost, limit, room: _up_to(cost, limit, room, True),
    "at least one": lambda cost, limit, room: max(1, _up_to(cost, limit, room)),
    "forgets the fixed part": lambda cost, limit, room: min(room, int(limit / cost["each"])),
    "rounds up": lambda cost, limit, room: min(
        room, max(0, -int(-(limit - cost["fixed"]) / cost["each"] // 1))
    ),
    "a fraction of a request": lambda cost, limit, room: min(
        room, (limit - cost["fixed"]) / cost["each"]
    ),
    "one too many": lambda cost, limit, room: _up_to(cost, limit, room) + 1,
}


def _best(
    service: Any,
    limits: list[int],
    value: Callable[[Any], float],
    order: Callable[[list[int]], list[int]] = sorted,
) -> int | None:
    """The first limit, in `order`, with the largest value; None where every value is 0."""
    values = {limit: value(service.run(limit)) for limit in order(limits)}
    best = max(values, key=values.__getitem__)
    return best if values[best] > 0 else None


def _kept(promise: tuple[float, float]) -> Callable[[Any], int]:
    return lambda run: sum(a <= promise[0] and b <= promise[1] for a, b in run.waits)


def _medians(service: Any, limits: list[int], promise: tuple[float, float]) -> int | None:
    """By the median request: the largest limit that it is content with."""
    content = [
        limit
        for limit in sorted(limits)
        if all(
            median(wait[half] for wait in service.run(limit).waits) <= promise[half]
            for half in (0, 1)
        )
    ]
    return content[-1] if content else None


def _sort_in_place(service: Any, limits: list[int], promise: tuple[float, float]) -> int | None:
    limits.sort(reverse=True)
    return _best(service, limits, lambda run: _kept(promise)(run) / run.seconds)


CHOOSE: Mutants = {
    "the largest share": lambda service, limits, promise: _best(service, limits, _kept(promise)),
    "only the first token": lambda service, limits, promise: _best(
        service, limits, lambda run: sum(a <= promise[0] for a, _ in run.waits) / run.seconds
    ),
    "only the pace": lambda service, limits, promise: _best(
        service, limits, lambda run: sum(b <= promise[1] for _, b in run.waits) / run.seconds
    ),
    "the most throughput": lambda service, limits, promise: _best(
        service, limits, lambda run: len(run.waits) / run.seconds
    ),
    "the shortest steps": lambda service, limits, promise: min(limits),
    "the largest of equals": lambda service, limits, promise: _best(
        service,
        limits,
        lambda run: _kept(promise)(run) / run.seconds,
        lambda given: sorted(given, reverse=True),
    ),
    "the median request decides": _medians,
    "a limit where nothing is kept": lambda service, limits, promise: (
        _best(service, limits, lambda run: _kept(promise)(run) / run.seconds) or min(limits)
    ),
    "reorders its input": _sort_in_place,
}
