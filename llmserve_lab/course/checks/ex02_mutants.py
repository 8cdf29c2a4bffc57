"""Wrong answers to exercise 02, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from statistics import mean
from typing import Any

Mutants = dict[str, Callable[..., Any]]


def _split(arrival: float, first: float, times: list[float]) -> dict[str, float]:
    decode = times[-1] - times[0]
    return {"queue": first - arrival, "prefill": times[0] - first, "decode": decode}


SPLIT: Mutants = {
    "the queue counts as prefill": lambda arrival, first, times: (
        _split(arrival, first, times) | {"queue": 0.0, "prefill": times[0] - arrival}
    ),
    "decode begins with the prefill": lambda arrival, first, times: (
        _split(arrival, first, times) | {"decode": times[-1] - first}
    ),
    "the queue lasts until the first token": lambda arrival, first, times: (
        _split(arrival, first, times) | {"queue": times[0] - arrival}
    ),
    "decode is the whole latency": lambda arrival, first, times: (
        _split(arrival, first, times) | {"decode": times[-1] - arrival}
    ),
    "decode per token": lambda arrival, first, times: (
        _split(arrival, first, times) | {"decode": (times[-1] - times[0]) / len(times)}
    ),
    "a tuple for a dict": lambda arrival, first, times: tuple(
        _split(arrival, first, times).values()
    ),
}


def _ranked(rank: Callable[[int, int], int]) -> Callable[[list[float], int], float | None]:
    """Nearest rank, with a way of its own to find the index from percent and count."""

    def nearest_rank(values: list[float], percent: int) -> float | None:
        if not values:
            return None
        return sorted(values)[min(max(rank(percent, len(values)), 0), len(values) - 1)]

    return nearest_rank


def _right_index(percent: int, count: int) -> int:
    return math.ceil(percent * count / 100) - 1


def _unsorted(values: list[float], percent: int) -> float | None:
    return values[max(_right_index(percent, len(values)), 0)] if values else None


def _wraps(values: list[float], percent: int) -> float | None:
    return sorted(values)[_right_index(percent, len(values))] if values else None


def _sort_in_place(values: list[float], percent: int) -> float | None:
    values.sort()
    return _wraps(values, percent) if percent or not values else values[0]


NEAREST_RANK: Mutants = {
    "rounds down": _ranked(lambda percent, n: percent * n // 100 - 1),
    "one place too far": _ranked(lambda percent, n: _right_index(percent, n) + 1),
    "rounds to the nearest": _ranked(lambda percent, n: round(percent * n / 100) - 1),
    "of n - 1": _ranked(lambda percent, n: math.ceil(percent * (n - 1) / 100)),
    "divides first: a rounding error moves the rank": _ranked(
        lambda percent, n: math.ceil(percent / 100 * n) - 1
    ),
    "from the slow end": _ranked(lambda percent, n: n - 1 - _right_index(percent, n)),
    "forgets to sort": _unsorted,
    "0 per cent is the last value": _wraps,
    "sorts its input": _sort_in_place,
    "0 of nothing": lambda values, percent: _ranked(_right_index)(values, percent) or 0.0,
    "fails on nothing": lambda values, percent: sorted(values)[max(0, _right_index(percent, 1))],
}


def _interpolated(
    place: Callable[[int, int], float], ordering: Callable[[list[float]], list[float]] = sorted
) -> Callable[[list[float], int], float | None]:
    def percentile(values: list[float], percent: int) -> float | None:
        if not values:
            return None
        ordered, last = ordering(values), len(values) - 1
        at = min(max(place(percent, len(values)), 0.0), last)
        below = int(at)
        above = min(below + 1, last)
        return ordered[below] + (at - below) * (ordered[above] - ordered[below])

    return percentile


def _place(percent: int, count: int) -> float:
    return (count - 1) * percent / 100


def _no_next(values: list[float], percent: int) -> float | None:
    if not values:
        return None
    ordered, below = sorted(values), int(_place(percent, len(values)))
    share = _place(percent, len(values)) - below
    return ordered[below] + share * (ordered[below + 1] - ordered[below])


def _halfway(values: list[float], percent: int) -> float | None:
    if not values:
        return None
    ordered, at = sorted(values), _place(percent, len(values))
    return (ordered[math.floor(at)] + ordered[math.ceil(at)]) / 2


def _from_above(values: list[float], percent: int) -> float | None:
    if not values:
        return None
    ordered, at = sorted(values), _place(percent, len(values))
    below, above = ordered[math.floor(at)], ordered[math.ceil(at)]
    return above - (at - int(at)) * (above - below)


PERCENTILE: Mutants = {
    "nearest rank": _ranked(_right_index),
    "the lower neighbour": _interpolated(lambda percent, n: int(_place(percent, n))),
    "the upper neighbour": _interpolated(lambda percent, n: math.ceil(_place(percent, n))),
    "of n for n - 1": _interpolated(lambda percent, n: n * percent / 100),
    "a place too low": _interpolated(lambda percent, n: n * percent / 100 - 1),
    "halfway between the neighbours": _halfway,
    "the share taken from the upper one": _from_above,
    "forgets to sort": _interpolated(_place, list),
    "looks beyond the last value": _no_next,
    "0 of nothing": lambda values, percent: _interpolated(_place)(values, percent) or 0.0,
}


def _timer(
    warm: bool = True, before: bool = True, after: bool = True, inside: bool = False
) -> Callable[[Any, Any, int], float]:
    """A timer, right unless told to leave something out or to wait after each launch."""

    def seconds_per_call(device: Any, work: Any, repeats: int) -> float:
        if warm:
            device.launch(work)
        if before:
            device.synchronize()
        began = device.clock()
        for _ in range(repeats):
            device.launch(work)
            if inside:
                device.synchronize()
        if after:
            device.synchronize()
        return float((device.clock() - began) / repeats)

    return seconds_per_call


def _one_call(device: Any, work: Any, repeats: int) -> float:
    return _timer()(device, work, 1)


def _counts_the_warm_up(device: Any, work: Any, repeats: int) -> float:
    return _timer()(device, work, repeats) * repeats / (repeats + 1)


TIMER: Mutants = {
    "no warm-up": _timer(warm=False),
    "no wait at the end": _timer(after=False),
    "no wait at the start": _timer(before=False),
    "no wait at all": _timer(before=False, after=False),
    "waits after each launch": _timer(inside=True),
    "times one call": _one_call,
    "divides by one too many": _counts_the_warm_up,
    "the total": lambda device, work, repeats: _timer()(device, work, repeats) * repeats,
    "in milliseconds": lambda device, work, repeats: 1000 * _timer()(device, work, repeats),
}

_p = _interpolated(_place)


def _report(requests: list[Any]) -> dict[str, Any]:
    gaps = _all_gaps(requests)
    return {
        "ttft_p95": _p([times[0] - arrival for arrival, times in requests], 95),
        "gap_p99": _p(gaps, 99),
        "rate": len(gaps) / sum(gaps) if gaps else None,
    }


def _all_gaps(requests: list[Any]) -> list[float]:
    return [after - before for _, times in requests for before, after in pairwise(times)]


def _tpots(requests: list[Any]) -> dict[str, Any]:
    means = [(times[-1] - times[0]) / (len(times) - 1) for _, times in requests if len(times) > 1]
    return _report(requests) | {"gap_p99": _p(means, 99)}


def _first_gaps(requests: list[Any]) -> dict[str, Any]:
    gaps = [b - a for arrival, times in requests for a, b in pairwise([arrival, *times])]
    return _report(requests) | {"gap_p99": _p(gaps, 99)}


def _mean_of_rates(requests: list[Any]) -> dict[str, Any]:
    gaps = _all_gaps(requests)
    return _report(requests) | {"rate": mean(1 / gap for gap in gaps) if gaps else None}


def _rate_with_first(requests: list[Any]) -> dict[str, Any]:
    seconds = sum(times[-1] - arrival for arrival, times in requests)
    tokens = sum(len(times) for _, times in requests)
    return _report(requests) | {"rate": tokens / seconds if _all_gaps(requests) else None}


REPORT: Mutants = {
    "p99 of the TPOTs": _tpots,
    "the first token is a gap": _first_gaps,
    "the mean of rates": _mean_of_rates,
    "the rate counts the first tokens": _rate_with_first,
    "seconds per token": lambda requests: (
        _report(requests) | {"rate": _report(requests)["rate"] and 1 / _report(requests)["rate"]}
    ),
    "the slowest for p95": lambda requests: (
        _report(requests) | {"ttft_p95": max(times[0] - arrival for arrival, times in requests)}
    ),
    "forgets the arrival": lambda requests: (
        _report(requests) | {"ttft_p95": _p([times[0] for _, times in requests], 95)}
    ),
    "0 where there is no gap": lambda requests: {k: v or 0.0 for k, v in _report(requests).items()},
}
