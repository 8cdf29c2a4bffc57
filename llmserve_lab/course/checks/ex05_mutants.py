"""Wrong answers to exercise 05, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import mean
from typing import Any

Mutants = dict[str, Callable[..., Any]]
Log = list[Any]


def _window(log: Log) -> float:
    return float(max(times[-1] for _, times in log) - min(arrival for arrival, _ in log))


def _kept(request: Any, ttft: float, tpot: float, single: bool = True) -> bool:
    """Whether both promises were kept; `single` is what a request of one token counts as."""
    arrival, times = request
    if times[0] - arrival > ttft:
        return False
    return single if len(times) == 1 else (times[-1] - times[0]) / (len(times) - 1) <= tpot


THROUGHPUT: Mutants = {
    "starts the clock at 0": lambda log: len(log) / max(times[-1] for _, times in log),
    "takes the log to be in order": lambda log: len(log) / abs(log[-1][1][-1] - log[0][0] or 1.0),
    "counts tokens": lambda log: sum(len(times) for _, times in log) / _window(log),
    "adds up the latencies": lambda log: len(log) / sum(t[-1] - a for a, t in log),
    "starts at the first token": lambda log: (
        len(log) / (max(t[-1] for _, t in log) - min(t[0] for _, t in log) + 1e-9)
    ),
    "one gap less": lambda log: (len(log) - 1) / _window(log),
    "seconds per request": lambda log: _window(log) / len(log),
}


def _share(log: Log, ttft: float, tpot: float) -> float:
    return sum(_kept(request, ttft, tpot) for request in log) / len(log)


def _window_of_good(log: Log, ttft: float, tpot: float) -> float:
    good = [request for request in log if _kept(request, ttft, tpot)]
    return len(good) / _window(good) if good else 0.0


def _largest_gap(log: Log, ttft: float, tpot: float) -> float:
    good = sum(
        times[0] - arrival <= ttft and all(b - a <= tpot for a, b in pairwise(times))
        for arrival, times in log
    )
    return good / _window(log)


def _counted(keeps: Callable[[Any, float, float], bool]) -> Callable[[Log, float, float], float]:
    def goodput(log: Log, ttft: float, tpot: float) -> float:
        return sum(keeps(request, ttft, tpot) for request in log) / _window(log)

    return goodput


def _strict(request: Any, ttft: float, tpot: float) -> bool:
    arrival, times = request
    pace = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
    return bool(times[0] - arrival < ttft and pace < tpot)


GOODPUT: Mutants = {
    "the share for the rate": _share,
    "the window of the good ones": _window_of_good,
    "only TTFT": _counted(lambda request, ttft, tpot: request[1][0] - request[0] <= ttft),
    "only TPOT": _counted(lambda request, ttft, tpot: _kept(request, float("inf"), tpot)),
    "one promise is enough": _counted(
        lambda request, ttft, tpot: (
            request[1][0] - request[0] <= ttft or _kept(request, float("inf"), tpot)
        )
    ),
    "a single token breaks the promise": _counted(
        lambda request, ttft, tpot: _kept(request, ttft, tpot, single=False)
    ),
    "the largest gap for the mean": _largest_gap,
    "a limit that is met is missed": _counted(_strict),
    "TTFT without the arrival": _counted(
        lambda request, ttft, tpot: _kept((0.0, request[1]), ttft, tpot)
    ),
}


def _walk(log: Log, end: Callable[[list[float]], float] = lambda times: times[-1]) -> float:
    """The area under the number in the system, if each leaves at `end`."""
    changes = sorted([(a, 1) for a, _ in log] + [(end(times), -1) for _, times in log])
    inside, area = 0, 0.0
    for (now, change), (following, _) in pairwise(changes):
        inside += change
        area += inside * (following - now)
    return area


def _counts(log: Log) -> list[int]:
    changes = sorted([(a, 1) for a, _ in log] + [(times[-1], -1) for _, times in log])
    counts, inside = [], 0
    for _, change in changes:
        inside += change
        counts.append(inside)
    return counts


def _one_behind(log: Log) -> float:
    changes = sorted([(a, 1) for a, _ in log] + [(times[-1], -1) for _, times in log])
    inside, area = 0, 0.0
    for (now, _), (following, change) in pairwise(changes):
        area += inside * (following - now)
        inside += change
    return area / _window(log)


IN_SYSTEM: Mutants = {
    "the mean over the changes": lambda log: mean(_counts(log)),
    "the most at a time": lambda log: float(max(_counts(log))),
    "leaves at the first token": lambda log: _walk(log, lambda times: times[0]) / _window(log),
    "the area": _walk,
    "the mean latency": lambda log: _walk(log) / len(log),
    "one change behind": _one_behind,
    "from time 0": lambda log: _walk(log) / max(times[-1] for _, times in log),
}


def _cheapest(
    runs: dict[float, Log],
    price: float,
    tokens: Callable[[Log], float],
    choose: Callable[..., Any] = min,
    factor: float = 1e6 / 3600,
) -> dict[str, float] | None:
    """The choice by the cost of `tokens`, unless told to choose otherwise."""
    costs = {
        load: price * _window(log) * factor / tokens(log)
        for load, log in runs.items()
        if tokens(log)
    }
    if not costs:
        return None
    best = choose(costs, key=costs.__getitem__)
    return {"load": best, "cost": costs[best]}


def _good_tokens(ttft: float, tpot: float) -> Callable[[Log], float]:
    return lambda log: sum(len(r[1]) for r in log if _kept(r, ttft, tpot))


def _most_goodput(runs: dict[float, Log], ttft: float, tpot: float, price: float) -> Any:
    tokens = _good_tokens(ttft, tpot)
    if not any(map(tokens, runs.values())):
        return None
    best = max(runs, key=lambda load: _share(runs[load], ttft, tpot))
    count = tokens(runs[best]) or 1.0
    return {"load": best, "cost": price * _window(runs[best]) / 3600 / count * 1e6}


def _all_for_good(runs: dict[float, Log], ttft: float, tpot: float, price: float) -> Any:
    good = _cheapest(runs, price, _good_tokens(ttft, tpot))
    every = _cheapest(runs, price, lambda log: sum(len(times) for _, times in log))
    return good and every


CHEAPEST: Mutants = {
    "late tokens share the bill": _all_for_good,
    "requests for tokens": lambda runs, ttft, tpot, price: _cheapest(
        runs, price, lambda log: sum(_kept(request, ttft, tpot) for request in log)
    ),
    "the dearest": lambda runs, ttft, tpot, price: _cheapest(
        runs, price, _good_tokens(ttft, tpot), max
    ),
    "the largest share in time": _most_goodput,
    "forgets that an hour has 3600 s": lambda runs, ttft, tpot, price: _cheapest(
        runs, price, _good_tokens(ttft, tpot), factor=1e6
    ),
    "for a thousand tokens": lambda runs, ttft, tpot, price: _cheapest(
        runs, price, _good_tokens(ttft, tpot), factor=1e3 / 3600
    ),
    "0 where nothing is in time": lambda runs, ttft, tpot, price: (
        _cheapest(runs, price, _good_tokens(ttft, tpot)) or {"load": 0.0, "cost": 0.0}
    ),
}


def _queue(
    due: list[float], service: list[float], limit: float, waits: bool = True
) -> dict[str, int]:
    """Both counts, unless the requests are told not to wait for each other."""
    free, late_due, late_sent = 0.0, 0, 0
    for planned, seconds in zip(due, service, strict=True):
        sent = max(planned, free) if waits else planned
        free = sent + seconds
        late_due += free - planned > limit
        late_sent += free - sent > limit
    return {"due": late_due, "sent": late_sent}


def _waiting_only(due: list[float], service: list[float], limit: float) -> dict[str, int]:
    free, late = 0.0, 0
    for planned, seconds in zip(due, service, strict=True):
        late += max(planned, free) - planned > limit
        free = max(planned, free) + seconds
    return _queue(due, service, limit) | {"due": late}


def _back_to_back(due: list[float], service: list[float], limit: float) -> dict[str, int]:
    ends = [due[0] + sum(service[: i + 1]) for i in range(len(service))]
    late = sum(end - planned > limit for end, planned in zip(ends, due, strict=True))
    return _queue(due, service, limit) | {"due": late}


SLOW: Mutants = {
    "nobody waits for anybody": lambda due, service, limit: _queue(due, service, limit, False),
    "the other way round": lambda due, service, limit: dict(
        zip(("sent", "due"), _queue(due, service, limit).values(), strict=True)
    ),
    "only the waiting counts": _waiting_only,
    "never idle": _back_to_back,
    "both from the plan": lambda due, service, limit: dict.fromkeys(
        ("due", "sent"), _queue(due, service, limit)["due"]
    ),
    "shares for counts": lambda due, service, limit: {
        name: count / len(due) for name, count in _queue(due, service, limit).items()
    },
}
