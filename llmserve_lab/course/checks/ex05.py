"""Exercise 05: throughput, goodput, Little's law, the price of a load, and who is left out."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from llmserve_lab.course.checks import ex05_mutants as mutants
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Maybe, Number, Record

Request = tuple[float, list[float]]  # arrival and token times, in seconds on one clock
Log = list[Request]

RANDOM_CASES = 6
MOST_REQUESTS, MOST_TOKENS, MOST_LOADS = 8, 8, 4
DIGITS = 3
BETWEEN = 0.00037  # a limit between two times of three digits: never met exactly by chance
SECONDS_PER_HOUR, MILLION = 3600, 1_000_000


def window(log: Log) -> float:
    """Seconds from the first arrival to the last token."""
    return max(times[-1] for _, times in log) - min(arrival for arrival, _ in log)


def throughput(log: Log) -> float:
    return len(log) / window(log)


def in_time(request: Request, ttft: float, tpot: float) -> bool:
    arrival, times = request
    if times[0] - arrival > ttft:
        return False
    return len(times) == 1 or (times[-1] - times[0]) / (len(times) - 1) <= tpot


def goodput(log: Log, ttft: float, tpot: float) -> float:
    return sum(in_time(request, ttft, tpot) for request in log) / window(log)


def in_system(log: Log) -> float:
    changes = [(arrival, 1) for arrival, _ in log] + [(times[-1], -1) for _, times in log]
    inside, area = 0, 0.0
    for (now, change), (following, _) in pairwise(sorted(changes)):
        inside += change
        area += inside * (following - now)
    return area / window(log)


def cheapest(
    runs: dict[float, Log], ttft: float, tpot: float, price: float
) -> dict[str, float] | None:
    costs = {}
    for load, log in runs.items():
        tokens = sum(len(request[1]) for request in log if in_time(request, ttft, tpot))
        if tokens:
            costs[load] = price * window(log) / SECONDS_PER_HOUR / tokens * MILLION
    if not costs:
        return None
    best = min(costs, key=costs.__getitem__)
    return {"load": best, "cost": costs[best]}


def slow(due: list[float], service: list[float], limit: float) -> dict[str, int]:
    free, late_due, late_sent = 0.0, 0, 0
    for planned, seconds in zip(due, service, strict=True):
        sent = max(planned, free)
        free = sent + seconds
        late_due += free - planned > limit
        late_sent += free - sent > limit
    return {"due": late_due, "sent": late_sent}


def _logs(rng: random.Random) -> list[Arguments]:
    fixed: list[Log] = [
        [(0.0, [0.5, 1.0])],
        [(1.0, [1.5, 3.0]), (0.5, [0.75, 1.0, 1.25])],  # the later arrival comes first
        [(2.0, [2.5]), (4.0, [4.25, 4.5])],  # nobody in between
        [(1.0, [1.5, 2.0]), (2.0, [2.5, 3.0])],  # one comes as the other goes
    ]
    return [{"log": log} for log in fixed + [_log(rng) for _ in range(RANDOM_CASES)]]


def _log(rng: random.Random) -> Log:
    return [_request(rng) for _ in range(rng.randint(3, MOST_REQUESTS))]


def _request(rng: random.Random) -> Request:
    arrival = _seconds(rng, 0.5, 6)
    times = [arrival + _seconds(rng, 0.1, 2)]
    for _ in range(rng.randrange(MOST_TOKENS)):
        times.append(times[-1] + _seconds(rng, 0.01, 0.3))
    return arrival, [round(time, DIGITS) for time in times]


def _promises(rng: random.Random) -> list[Arguments]:
    log: Log = [
        (0.0, [0.5, 0.75, 1.0]),
        (1.0, [1.25]),  # one token: no pace to keep
        (1.0, [1.25, 1.5, 3.25]),  # the last gap is long
        (2.0, [4.0, 4.25, 4.5]),  # the first token is late
    ]
    fixed = [(log, 0.5, 0.25), (log, 0.25, 0.25), (log, 2.0, 1.0), (log, 0.125, 1.0)]
    drawn = [(_log(rng), *_limits(rng)) for _ in range(RANDOM_CASES)]
    return [{"log": log, "ttft": ttft, "tpot": tpot} for log, ttft, tpot in fixed + drawn]


def _limits(rng: random.Random) -> tuple[float, float]:
    return _seconds(rng, 0.4, 1.8) + BETWEEN, _seconds(rng, 0.08, 0.25) + BETWEEN


def _sweeps(rng: random.Random) -> list[Arguments]:
    calm: Log = [(0.0, [0.25, 0.5]), (4.0, [4.25, 4.5])]
    busy: Log = [(0.0, [0.25, 0.5]), (0.25, [0.5, 0.75, 1.0]), (0.5, [2.0, 2.25, 2.5])]
    late: Log = [(0.0, [0.25, 0.5]), *[(0.0, [2.0, 2.25, 2.5])] * 5]
    fixed: list[tuple[dict[float, Log], float, float, float]] = [
        ({0.5: calm}, 0.5, 0.5, 3.6),
        ({0.5: calm, 0.9: busy, 1.5: late}, 0.5, 0.5, 2.0),
        ({1.5: late, 0.9: busy, 0.5: calm}, 4.0, 0.5, 1.0),  # everything is in time
        ({0.9: busy, 1.5: late}, 0.125, 0.5, 2.0),  # nothing is
    ]
    drawn = [(_runs(rng), *_limits(rng), _seconds(rng, 0.5, 9)) for _ in range(RANDOM_CASES)]
    return [
        {"runs": runs, "ttft": ttft, "tpot": tpot, "price": price}
        for runs, ttft, tpot, price in fixed + drawn
    ]


def _runs(rng: random.Random) -> dict[float, Log]:
    loads = rng.sample([0.3, 0.5, 0.7, 0.9, 1.1, 1.5], rng.randint(2, MOST_LOADS))
    return {load: _log(rng) for load in loads}


def _plans(rng: random.Random) -> list[Arguments]:
    even = [0.5 * i for i in range(10)]
    fixed = [
        (even, [0.25] * 10, 0.5),  # nobody is slow
        (even, [0.25, 0.25, 3.0, *[0.25] * 7], 0.5),  # one blocks the others
        (even, [0.25] * 9 + [3.0], 0.5),  # one that nobody is behind
        ([1.0, 2.0], [1.5, 0.25], 0.5),
    ]
    drawn = [_plan(rng) for _ in range(RANDOM_CASES)]
    return [{"due": d, "service": s, "limit": limit} for d, s, limit in fixed + drawn]


def _plan(rng: random.Random) -> tuple[list[float], list[float], float]:
    gap, count = _seconds(rng, 0.2, 1), rng.randint(12, 24)
    service = [_seconds(rng, 0.05, 0.8 * gap) for _ in range(count)]
    service[rng.randrange(2, count // 2)] = _seconds(rng, 3, 6) * gap
    return [round(gap * i, DIGITS) for i in range(count)], service, gap + BETWEEN


def _seconds(rng: random.Random, low: float, high: float) -> float:
    return round(rng.uniform(low, high), DIGITS)


RATE = Number("requests/s")
COUNTS: dict[str, Any] = dict.fromkeys(("due", "sent"), Number("requests", whole=True))
GRADERS = (
    Grader(
        key="05.1",
        name="ex05_throughput",
        reference=throughput,
        shape=RATE,
        cases=_logs,
        hints=(
            "Two moments bound the window of a run. Which request has the first, which the last?",
            "From the first arrival to the last token, in whatever order the log lists them.",
            "len(log) / window(log).",
        ),
        mutants=mutants.THROUGHPUT,
    ),
    Grader(
        key="05.2",
        name="ex05_goodput",
        reference=goodput,
        shape=RATE,
        cases=_promises,
        hints=(
            "Both promises must be kept. Which requests have no TPOT that could be too long?",
            "Count the requests in time; divide by the window of the whole run, not of those.",
            "A request of one token keeps the TPOT promise. A limit that is met exactly is kept.",
        ),
        mutants=mutants.GOODPUT,
    ),
    Grader(
        key="05.3",
        name="ex05_in_system",
        reference=in_system,
        shape=Number("requests"),
        cases=_logs,
        hints=(
            "The mean over time, not over events: how long did each number last?",
            "Walk through the sorted changes: add the change, then the number times the time until "
            "the next change.",
            "For each pair of neighbours (now, change), (following, _): inside += change; area += "
            "inside * (following - now). Return area / window(log).",
        ),
        mutants=mutants.IN_SYSTEM,
    ),
    Grader(
        key="05.4",
        name="ex05_cheapest",
        reference=cheapest,
        shape=Maybe(Record({"load": Number(), "cost": Number()})),
        cases=_sweeps,
        hints=(
            "The machine is paid for the whole window. Which tokens may share that bill?",
            "Per load: price * window / 3600 / (tokens of requests in time) * 1,000,000. Leave out "
            "loads without such a token.",
            "Collect the costs in a dict by load; return None if it is empty, else the load with "
            "min(costs, key=costs.get) and its cost.",
        ),
        mutants=mutants.CHEAPEST,
    ),
    Grader(
        key="05.5",
        name="ex05_slow",
        reference=slow,
        shape=Record(COUNTS),
        cases=_plans,
        hints=(
            "When is a request sent? It must be due, and the server must be free again.",
            "Keep one variable: when the server is free. Each request ends at its sending plus its "
            "service time.",
            "sent = max(planned, free); free = sent + seconds. Compare free - planned and "
            "free - sent with the limit.",
        ),
        mutants=mutants.SLOW,
    ),
)
