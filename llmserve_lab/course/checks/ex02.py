"""Exercise 02: stages, percentiles, and a timer for asynchronous devices."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from llmserve_lab.course.checks import ex02_mutants as mutants
from llmserve_lab.course.checks.fake_device import FakeDevice, FakeKernel
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Maybe, Number, Record

Request = tuple[float, list[float]]  # arrival and token times, in seconds on one clock

RANDOM_CASES = 6
MOST_VALUES, MOST_TOKENS, MOST_REQUESTS = 30, 8, 6
TTFT_PERCENT, GAP_PERCENT = 95, 99
DIGITS = 3


def split(arrival: float, first_scheduled: float, token_times: list[float]) -> dict[str, float]:
    return {
        "queue": first_scheduled - arrival,
        "prefill": token_times[0] - first_scheduled,
        "decode": token_times[-1] - token_times[0],
    }


def nearest_rank(values: list[float], percent: int) -> float | None:
    if not values:
        return None
    rank = max(1, -(-percent * len(values) // 100))
    return sorted(values)[rank - 1]


def percentile(values: list[float], percent: int) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def seconds_per_call(device: FakeDevice, work: FakeKernel, repeats: int) -> float:
    device.launch(work)
    device.synchronize()
    began = device.clock()
    for _ in range(repeats):
        device.launch(work)
    device.synchronize()
    return (device.clock() - began) / repeats


def report(requests: list[Request]) -> dict[str, float | None]:
    gaps = [after - before for _, times in requests for before, after in pairwise(times)]
    return {
        "ttft_p95": percentile([times[0] - arrival for arrival, times in requests], TTFT_PERCENT),
        "gap_p99": percentile(gaps, GAP_PERCENT),
        "rate": len(gaps) / sum(gaps) if gaps else None,
    }


def _stages(rng: random.Random) -> list[Arguments]:
    fixed = [(0.0, 0.25, [0.5, 0.75, 1.5]), (2.0, 2.0, [2.5]), (1.0, 3.0, [3.25, 3.5])]
    return [
        {"arrival": arrival, "first_scheduled": first, "token_times": times}
        for arrival, first, times in fixed + [_request(rng) for _ in range(RANDOM_CASES)]
    ]


def _request(rng: random.Random) -> tuple[float, float, list[float]]:
    arrival = _seconds(rng, 0.1, 5)
    first = round(arrival + _seconds(rng, 0.05, 2), DIGITS)
    times = [first + _seconds(rng, 0.1, 2)]
    for _ in range(rng.randrange(MOST_TOKENS)):
        times.append(times[-1] + _seconds(rng, 0.01, 0.3))
    return arrival, first, [round(time, DIGITS) for time in times]


def _percents(rng: random.Random) -> list[Arguments]:
    ten = [0.1, 0.9, 0.4, 0.2, 0.6, 1.0, 0.3, 0.8, 0.7, 0.5]  # not in order
    fixed = [
        (ten, 50), (ten, 95), (ten, 0), (ten, 100), ([2.5], 99), ([], 50),
        ([i / 8 for i in range(100)], 7), ([3.0, 1.0, 1.0, 2.0], 25),
    ]  # fmt: skip
    drawn = [
        ([_seconds(rng, 0.1, 9) for _ in range(rng.randint(2, MOST_VALUES))], rng.randint(1, 99))
        for _ in range(RANDOM_CASES)
    ]
    return [{"values": values, "percent": percent} for values, percent in fixed + drawn]


def _devices(rng: random.Random) -> list[Arguments]:
    fixed = [
        (FakeDevice(), FakeKernel(0.25), 1),
        (FakeDevice(), FakeKernel(0.25), 4),
        (FakeDevice(), FakeKernel(0.125, first=2.0), 4),
        (FakeDevice(busy=1.0), FakeKernel(0.125), 3),
    ]
    drawn = [_device(rng) for _ in range(RANDOM_CASES)]
    return [{"device": d, "work": w, "repeats": n} for d, w, n in fixed + drawn]


def _device(rng: random.Random) -> tuple[FakeDevice, FakeKernel, int]:
    work = FakeKernel(_seconds(rng, 0.001, 0.2), first=_seconds(rng, 0.1, 3))
    return FakeDevice(busy=_seconds(rng, 0.1, 1)), work, rng.randint(2, 30)


def _runs(rng: random.Random) -> list[Arguments]:
    fixed: list[list[Request]] = [
        [(0.0, [0.5, 0.75, 1.0, 2.0])],
        [(1.0, [1.5]), (2.0, [2.25])],  # no gaps at all
        [(0.0, [0.25]), (0.5, [1.5, 1.75, 2.0, 2.25]), (1.0, [1.25, 3.25])],
    ]
    drawn = [[(arrival, times) for arrival, _, times in _several(rng)] for _ in range(RANDOM_CASES)]
    return [{"requests": requests} for requests in fixed + drawn]


def _several(rng: random.Random) -> list[tuple[float, float, list[float]]]:
    return [_request(rng) for _ in range(rng.randint(2, MOST_REQUESTS))]


def _seconds(rng: random.Random, low: float, high: float) -> float:
    return round(rng.uniform(low, high), DIGITS)


SECONDS = Number("s")
STAGES: dict[str, Any] = dict.fromkeys(("queue", "prefill", "decode"), SECONDS)
GRADERS = (
    Grader(
        key="02.1",
        name="ex02_split",
        reference=split,
        shape=Record(STAGES),
        cases=_stages,
        hints=(
            "Three stretches of time, end to end. Which four moments bound them?",
            "Arrival, first scheduled, first token, last token.",
            "Each stage is the difference of two neighbours of those four.",
        ),
        mutants=mutants.SPLIT,
    ),
    Grader(
        key="02.2",
        name="ex02_nearest_rank",
        reference=nearest_rank,
        shape=Maybe(SECONDS),
        cases=_percents,
        hints=(
            "The answer is one of the measured values. At which place of the sorted list?",
            "At the rank percent * n / 100, rounded up, and at least 1; ranks count from 1.",
            "math.ceil(percent * n / 100) with the product first: percent / 100 * n is off by a "
            "rounding error now and then, as for 7 per cent of 100.",
        ),
        mutants=mutants.NEAREST_RANK,
    ),
    Grader(
        key="02.3",
        name="ex02_percentile",
        reference=percentile,
        shape=Maybe(SECONDS),
        cases=_percents,
        hints=(
            "place is between two indices. How far is it from the lower one?",
            "The lower value, and of the step to the next value the share place - below.",
            "At the last index there is no next value: let above be at most len(ordered) - 1.",
        ),
        mutants=mutants.PERCENTILE,
    ),
    Grader(
        key="02.4",
        name="ex02_timer",
        reference=seconds_per_call,
        shape=SECONDS,
        cases=_devices,
        hints=(
            "Two things must stay out of the reading: the first launch, and work of others. One "
            "thing must be in it: all of your own work.",
            "Launch once, synchronize, read the clock; launch `repeats` times, synchronize, read "
            "it again.",
            "Only one synchronize after the loop, none inside: host and device overlap. Divide the "
            "difference of the two readings by repeats.",
        ),
        mutants=mutants.TIMER,
    ),
    Grader(
        key="02.5",
        name="ex02_report",
        reference=report,
        shape=Record(
            {"ttft_p95": SECONDS, "gap_p99": Maybe(SECONDS), "rate": Maybe(Number("tokens/s"))}
        ),
        cases=_runs,
        hints=(
            "Collect one list of TTFTs and one list of all gaps. Which of the three needs neither "
            "percentile?",
            "The gaps of all requests go into one list; the rate is their number over their sum.",
            "pairwise(token_times) gives neighbours; a request of one token has none. Return None "
            "for gap_p99 and rate if the list of gaps is empty.",
        ),
        mutants=mutants.REPORT,
    ),
)
