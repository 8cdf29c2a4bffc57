"""Exercise 01: latency and throughput from the times at which tokens came."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

from llmserve_lab.course.checks import ex01_mutants as mutants
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Maybe, Number, Record

Request = tuple[float, list[float]]  # arrival and token times, in seconds on one clock

RANDOM_CASES = 6
MAX_REQUESTS = 5
MAX_TOKENS = 8


def ttft(arrival: float, token_times: list[float]) -> float:
    return token_times[0] - arrival


def latency(arrival: float, token_times: list[float]) -> float:
    return token_times[-1] - arrival


def tpot(arrival: float, token_times: list[float]) -> float | None:
    if len(token_times) == 1:
        return None
    return (token_times[-1] - token_times[0]) / (len(token_times) - 1)


def throughput(requests: list[Request]) -> float:
    first = min(arrival for arrival, _ in requests)
    last = max(times[-1] for _, times in requests)
    return sum(len(times) for _, times in requests) / (last - first)


def summarise(requests: list[Request]) -> dict[str, Any]:
    tpots = [value for request in requests if (value := tpot(*request)) is not None]
    return {
        "ttft": median(ttft(*request) for request in requests),
        "tpot": median(tpots) if tpots else None,
        "latency": median(latency(*request) for request in requests),
        "throughput": throughput(requests),
    }


def _one_request(rng: random.Random) -> list[Arguments]:
    fixed: list[Request] = [
        (0.0, [0.5, 0.6, 0.8]),
        (2.0, [2.25]),  # one token: no TPOT
        (1.0, [1.5, 1.6, 1.6, 2.5]),  # uneven gaps, two tokens at once
    ]
    drawn = [_request(rng, arrival=_seconds(rng, 0.1, 9)) for _ in range(RANDOM_CASES)]
    return [_named(request) for request in fixed + drawn]


def _runs(rng: random.Random) -> list[Arguments]:
    fixed: list[list[Request]] = [
        [(0.0, [0.5, 1.0])],
        [(1.0, [1.5, 2.0]), (0.0, [0.25, 0.5, 0.75, 3.0])],  # the later arrival comes first
        [(0.5, [1.0]), (0.75, [1.5])],  # no request has a TPOT
        [(0.0, [4.0]), (1.0, [1.25, 1.5, 2.0]), (1.5, [2.0, 2.25])],
    ]
    drawn = [
        [_request(rng, _seconds(rng, 0.1, 5)) for _ in range(rng.randint(2, MAX_REQUESTS))]
        for _ in range(RANDOM_CASES)
    ]
    return [{"requests": requests} for requests in fixed + drawn]


def _request(rng: random.Random, arrival: float) -> Request:
    times = [arrival + _seconds(rng, 0.1, 2)]
    for _ in range(rng.randrange(MAX_TOKENS)):
        times.append(times[-1] + _seconds(rng, 0.01, 0.3))
    return arrival, [round(time, 3) for time in times]


def _seconds(rng: random.Random, low: float, high: float) -> float:
    return round(rng.uniform(low, high), 3)


def _named(request: Request) -> Arguments:
    return {"arrival": request[0], "token_times": request[1]}


SECONDS = Number("s")
GRADERS = (
    Grader(
        key="01.1",
        name="ex01_ttft",
        reference=ttft,
        shape=SECONDS,
        cases=_one_request,
        hints=(
            "TTFT is a waiting time. Which two moments does it lie between?",
            "From the arrival to the first of the token times.",
            "Subtract arrival from token_times[0].",
        ),
        mutants=mutants.TTFT,
    ),
    Grader(
        key="01.2",
        name="ex01_latency",
        reference=latency,
        shape=SECONDS,
        cases=_one_request,
        hints=(
            "The clock starts when the request arrives, not when its first token comes.",
            "From the arrival to the last of the token times.",
            "The last item of a list is at index -1. Subtract arrival from it.",
        ),
        mutants=mutants.LATENCY,
    ),
    Grader(
        key="01.3",
        name="ex01_tpot",
        reference=tpot,
        shape=Maybe(SECONDS),
        cases=_one_request,
        hints=(
            "TPOT leaves the first token out: TTFT has counted it. How many gaps remain?",
            "n tokens have n - 1 gaps, and the gaps add up to latency minus TTFT.",
            "Divide (latency - TTFT) by len(token_times) - 1, after returning None for one token.",
        ),
        mutants=mutants.TPOT,
    ),
    Grader(
        key="01.4",
        name="ex01_throughput",
        reference=throughput,
        shape=Number("tokens/s"),
        cases=_runs,
        hints=(
            "Throughput belongs to the whole run. Requests overlap, so their times do not add up.",
            "All output tokens, divided by the time from the first arrival to the last token.",
            "The first arrival is the min over requests, in whatever order they are listed; the "
            "last token is the max of token_times[-1].",
        ),
        mutants=mutants.THROUGHPUT,
    ),
    Grader(
        key="01.5",
        name="ex01_summarise",
        reference=summarise,
        shape=Record(
            {
                "ttft": SECONDS,
                "tpot": Maybe(SECONDS),
                "latency": SECONDS,
                "throughput": Number("tokens/s"),
            }
        ),
        cases=_runs,
        hints=(
            "Your four functions do the work. Which of the four numbers is not a median?",
            "Collect one value per request, take the median; throughput(requests) is called once.",
            "A request of one token has no TPOT: leave its None out of the list before the median, "
            "and give None if the list is empty.",
        ),
        mutants=mutants.SUMMARISE,
    ),
)
