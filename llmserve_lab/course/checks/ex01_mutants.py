"""Wrong answers to exercise 01, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import mean, median
from typing import Any

Mutants = dict[str, Callable[..., Any]]


def _gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def _pop_first(arrival: float, times: list[float]) -> float:
    return times.pop(0) - arrival


TTFT: Mutants = {
    "forgets the arrival": lambda arrival, times: times[0],
    "runs to the last token": lambda arrival, times: times[-1] - arrival,
    "the gap after the first token": lambda arrival, times: (_gaps(times) or [0.0])[0],
    "the wrong sign": lambda arrival, times: arrival - times[0],
    "in milliseconds": lambda arrival, times: 1000 * (times[0] - arrival),
    "empties its input": _pop_first,
}

LATENCY: Mutants = {
    "starts at the first token": lambda arrival, times: times[-1] - times[0],
    "forgets the arrival": lambda arrival, times: times[-1],
    "stops at the first token": lambda arrival, times: times[0] - arrival,
    "adds up the waits": lambda arrival, times: sum(time - arrival for time in times),
    "the largest gap": lambda arrival, times: max(_gaps([arrival, *times])),
}


def _tpot_divided_by(offset: int) -> Callable[[float, list[float]], float | None]:
    def tpot(arrival: float, times: list[float]) -> float | None:
        return None if len(times) == 1 else (times[-1] - times[0]) / (len(times) + offset)

    return tpot


def _tpot_else(value: Any) -> Callable[[float, list[float]], Any]:
    def tpot(arrival: float, times: list[float]) -> Any:
        return value if len(times) == 1 else mean(_gaps(times))

    return tpot


TPOT: Mutants = {
    "divides by n": _tpot_divided_by(0),
    "divides by n + 1": _tpot_divided_by(1),
    "counts the first token's wait": lambda arrival, times: (
        None if len(times) == 1 else mean(_gaps([arrival, *times]))
    ),
    "divides the latency by n - 1": lambda arrival, times: (
        None if len(times) == 1 else (times[-1] - arrival) / (len(times) - 1)
    ),
    "the median gap": lambda arrival, times: None if len(times) == 1 else median(_gaps(times)),
    "0 for a single token": _tpot_else(0.0),
    "NaN for a single token": _tpot_else(float("nan")),
    "False for a single token": _tpot_else(False),
    "fails on a single token": lambda arrival, times: mean(_gaps(times)),
}


def _tokens(requests: list[Any]) -> int:
    return sum(len(times) for _, times in requests)


def _span(requests: list[Any]) -> float:
    return float(max(times[-1] for _, times in requests) - min(start for start, _ in requests))


def _sort_in_place(requests: list[Any]) -> float:
    requests.sort()
    return _tokens(requests) / _span(requests)


THROUGHPUT: Mutants = {
    "divides by the sum of latencies": lambda requests: (
        _tokens(requests) / sum(times[-1] - start for start, times in requests)
    ),
    "the mean of each request's rate": lambda requests: mean(
        len(times) / (times[-1] - start) for start, times in requests
    ),
    "starts at the first token": lambda requests: (
        _tokens(requests)
        / (max(times[-1] for _, times in requests) - min(times[0] for _, times in requests) + 1e-9)
    ),
    "takes the list to be in order of arrival": lambda requests: (
        _tokens(requests) / abs(requests[-1][1][-1] - requests[0][0] or 1.0)
    ),
    "starts the clock at 0": lambda requests: (
        _tokens(requests) / max(times[-1] for _, times in requests)
    ),
    "counts requests": lambda requests: len(requests) / _span(requests),
    "seconds per token": lambda requests: _span(requests) / _tokens(requests),
    "reorders its input": _sort_in_place,
}


def _summary(
    requests: list[Any],
    middle: Callable[[list[float]], float] = median,
    single: list[float] | None = None,
) -> dict[str, Any]:
    """A right summary, unless told to average otherwise or to count single tokens as `single`."""
    tpots: list[float] = []
    for _, times in requests:
        tpots += [mean(_gaps(times))] if len(times) > 1 else (single or [])
    return {
        "ttft": middle([times[0] - start for start, times in requests]),
        "tpot": middle(tpots) if tpots else None,
        "latency": middle([times[-1] - start for start, times in requests]),
        "throughput": _tokens(requests) / _span(requests),
    }


def _gap_of_all(requests: list[Any]) -> dict[str, Any]:
    gaps = [gap for _, times in requests for gap in _gaps(times)]
    return _summary(requests) | {"tpot": median(gaps) if gaps else None}


def _rates(requests: list[Any]) -> dict[str, Any]:
    rates = [len(times) / (times[-1] - start) for start, times in requests]
    return _summary(requests) | {"throughput": median(rates)}


_SHARED: dict[str, Any] = {}


def _one_dict_for_all(requests: list[Any]) -> dict[str, Any]:
    _SHARED.update(_summary(requests))
    return _SHARED


SUMMARISE: Mutants = {
    "means for medians": lambda requests: _summary(requests, middle=mean),
    "the worst request for the median": lambda requests: _summary(requests, middle=max),
    "the lower of two middle values": lambda requests: _summary(
        requests, middle=lambda values: sorted(values)[(len(values) - 1) // 2]
    ),
    "a single token's TPOT as 0": lambda requests: _summary(requests, single=[0.0]),
    "the median over all gaps": _gap_of_all,
    "the median of the requests' rates": _rates,
    "leaves a key out": lambda requests: {"ttft": _summary(requests)["ttft"]},
    "a tuple for a dict": lambda requests: tuple(_summary(requests).values()),
    "returns one dict again and again": _one_dict_for_all,
}
