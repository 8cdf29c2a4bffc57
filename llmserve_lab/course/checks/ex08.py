"""Exercise 08: a step's cost, the knee, the largest batch within a promise, three service levels.

The last answer is judged by what it makes of services that run on a virtual clock.
"""

from __future__ import annotations

import math
import random

from llmserve_lab.course.checks import ex08_mutants as mutants
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Maybe, Number, Record
from llmserve_lab.course.service import Service

Cost = dict[str, float]  # "fixed" and "each", in seconds
Step = tuple[int, float]  # batch size, seconds

RANDOM_CASES, RANDOM_SERVICES = 6, 2
FITTED = 1e-6  # relative: sums may be taken in another order
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LIMITS = (1, 2, 4, 8, 16)
BETWEEN = 0.37  # of a request's part: a limit that no batch meets exactly


def throughput(cost: Cost, batch: int) -> float:
    return batch / _tpot(cost, batch)


def fit(steps: list[Step]) -> Cost:
    mean_batch = sum(batch for batch, _ in steps) / len(steps)
    mean_time = sum(seconds for _, seconds in steps) / len(steps)
    together = sum((batch - mean_batch) * (seconds - mean_time) for batch, seconds in steps)
    each = together / sum((batch - mean_batch) ** 2 for batch, _ in steps)
    return {"fixed": mean_time - each * mean_batch, "each": each}


def knee(cost: Cost, gain: float, most: int) -> int | None:
    batch = 1
    while batch <= most:
        if throughput(cost, 2 * batch) < gain * throughput(cost, batch):
            return batch
        batch *= 2
    return None


def largest_batch(cost: Cost, limit: float, room: int) -> int:
    batch = 0
    while batch < room and _tpot(cost, batch + 1) <= limit:
        batch += 1
    return batch


def choose(service: Service, limits: list[int], promise: tuple[float, float]) -> int | None:
    best, most = None, 0.0
    for limit in sorted(limits):
        run = service.run(limit)
        kept = sum(ttft <= promise[0] and pace <= promise[1] for ttft, pace in run.waits)
        if kept / run.seconds > most:
            best, most = limit, kept / run.seconds
    return best


def _tpot(cost: Cost, batch: int) -> float:
    return cost["fixed"] + cost["each"] * batch


def _cost(rng: random.Random) -> Cost:
    return {"fixed": _drawn(rng, 0.002, 0.02), "each": _drawn(rng, 0.0001, 0.002)}


def _batches(rng: random.Random) -> list[Arguments]:
    fixed: list[tuple[Cost, int]] = [
        ({"fixed": 0.5, "each": 0.25}, 1),
        ({"fixed": 0.5, "each": 0.25}, 6),
        ({"fixed": 0.5, "each": 0.0}, 4),
        ({"fixed": 0.0, "each": 0.25}, 4),
    ]
    drawn = [(_cost(rng), rng.randint(2, 200)) for _ in range(RANDOM_CASES)]
    return [{"cost": cost, "batch": batch} for cost, batch in fixed + drawn]


def _measured(rng: random.Random) -> list[Arguments]:
    fixed: list[list[Step]] = [
        [(1, 0.75), (3, 1.25)],  # exactly on a line
        [(8, 2.5), (1, 0.75), (2, 1.0)],  # in another order
        [(1, 1.0), (2, 1.5), (16, 4.0)],  # on no line
        [(4, 1.5), (4, 2.0), (8, 2.5)],  # one size twice
    ]
    return [{"steps": steps} for steps in fixed + [_steps(rng) for _ in range(RANDOM_CASES)]]


def _steps(rng: random.Random) -> list[Step]:
    cost, sizes = _cost(rng), rng.sample(SIZES, rng.randint(4, 8))
    return [(size, round(_tpot(cost, size) * rng.uniform(0.9, 1.1), 6)) for size in sizes]


def _knees(rng: random.Random) -> list[Arguments]:
    fixed: list[tuple[Cost, float, int]] = [
        ({"fixed": 0.75, "each": 0.0625}, 1.4, 64),  # between two sizes
        ({"fixed": 0.5, "each": 0.5}, 1.9, 64),  # at once
        ({"fixed": 0.5, "each": 0.0}, 1.5, 64),  # never
        ({"fixed": 1.0, "each": 0.03}, 1.2, 32),  # beyond `most`
        ({"fixed": 0.5, "each": 0.1}, 1.3, 8),  # at `most`
    ]
    drawn = [
        (_cost(rng), _drawn(rng, 1.15, 1.8), rng.choice([4, 16, 64])) for _ in range(RANDOM_CASES)
    ]
    return [{"cost": c, "gain": gain, "most": most} for c, gain, most in fixed + drawn]


def _promises(rng: random.Random) -> list[Arguments]:
    cost = {"fixed": 0.5, "each": 0.25}
    fixed = [(cost, 1.6, 100), (cost, 2.0, 100), (cost, 2.0, 4), (cost, 0.6, 100), (cost, 0.75, 9)]
    drawn = []
    for _ in range(RANDOM_CASES):
        each = _cost(rng)
        limit = _tpot(each, rng.randint(2, 60)) + BETWEEN * each["each"]
        drawn.append((each, limit, rng.choice([8, 40, 100])))
    return [{"cost": c, "limit": limit, "room": room} for c, limit, room in fixed + drawn]


def _services(rng: random.Random) -> list[Arguments]:
    busy = Service(0.003, 0.0003, 90, prompt_token=0.0001)
    night = Service(0.003, 0.0003, math.inf, prompt_token=0.0001)
    backwards = [*LIMITS[::-1]]
    fixed: list[tuple[Service, list[int], tuple[float, float]]] = [
        (busy, [*LIMITS], (0.05, 0.008)),  # interactive
        (busy, [*LIMITS], (0.3, 0.005)),  # a strict pace
        (night, [*LIMITS], (math.inf, math.inf)),  # nobody watches
        (Service(0.003, 0.0003, 20, prompt_token=0.0001), backwards, (0.1, 0.02)),  # equally good
        (busy, [1, 2, 4], (0.001, 0.001)),  # never kept
    ]
    drawn = [(_service(rng), [*LIMITS], _promise(rng)) for _ in range(RANDOM_SERVICES)]
    return [{"service": s, "limits": limits, "promise": p} for s, limits, p in fixed + drawn]


def _service(rng: random.Random) -> Service:
    rate, seed = _drawn(rng, 60, 140), rng.randrange(1000)
    return Service(_drawn(rng, 0.002, 0.004), 0.0003, rate, prompt_token=0.0001, seed=seed)


def _promise(rng: random.Random) -> tuple[float, float]:
    return _drawn(rng, 0.03, 0.3), _drawn(rng, 0.004, 0.009)


def _drawn(rng: random.Random, low: float, high: float) -> float:
    return round(rng.uniform(low, high), 6)


WHOLE = Number(whole=True)
SECONDS = Number("s", relative=FITTED)
GRADERS = (
    Grader(
        key="08.1",
        name="ex08_throughput",
        reference=throughput,
        shape=Number("tokens/s"),
        cases=_batches,
        hints=(
            "How many tokens does one step make, and how long does it take?",
            "A step of `batch` requests makes `batch` tokens in tpot(cost, batch) seconds.",
            "batch / tpot(cost, batch).",
        ),
        mutants=mutants.THROUGHPUT,
    ),
    Grader(
        key="08.2",
        name="ex08_fit",
        reference=fit,
        shape=Record({"fixed": SECONDS, "each": SECONDS}),
        cases=_measured,
        hints=(
            "`each` is the slope of the line: how much time one more request adds.",
            "Slope: sum of (b - mean_batch) * (t - mean_time) over sum of (b - mean_batch) ** 2. "
            "The line passes through both means.",
            "Divide the two sums for each; fixed = mean_time - each * mean_batch. Return a dict "
            'with "fixed" and "each".',
        ),
        mutants=mutants.FIT,
    ),
    Grader(
        key="08.3",
        name="ex08_knee",
        reference=knee,
        shape=Maybe(WHOLE),
        cases=_knees,
        hints=(
            "Compare tokens per second at twice the batch with those at the batch.",
            "If throughput(cost, 2 * batch) is below gain times throughput(cost, batch), this "
            "batch is the answer; else double it.",
            "if throughput(cost, 2 * batch) < gain * throughput(cost, batch): return batch; then "
            "batch *= 2. After the loop, return None.",
        ),
        mutants=mutants.KNEE,
    ),
    Grader(
        key="08.4",
        name="ex08_largest_batch",
        reference=largest_batch,
        shape=WHOLE,
        cases=_promises,
        hints=(
            "Two things bound the batch. What if the step of a single request is too long already?",
            "Start at 0 and take one request more as long as the step keeps the limit and there is "
            "room.",
            "while batch < room and tpot(cost, batch + 1) <= limit: batch += 1.",
        ),
        mutants=mutants.LARGEST,
    ),
    Grader(
        key="08.5",
        name="ex08_choose",
        reference=choose,
        shape=Maybe(WHOLE),
        cases=_services,
        hints=(
            "Which limit lets most users be served well in the same time? Not: the largest share.",
            "For each limit: run = service.run(limit); count the pairs in run.waits that keep both "
            "halves; divide by run.seconds.",
            "Go through sorted(limits) and replace the best only where the new value is larger: "
            "then the smallest of equals stays. Start from best = None and 0.",
        ),
        mutants=mutants.CHOOSE,
    ),
)
