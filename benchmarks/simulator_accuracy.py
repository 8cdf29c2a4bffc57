"""How well the simulator foretells live runs on a machine whose speed drifts.

Rounds of calibration and live runs take turns, so that both see the same machine. Around each of
them a fixed batch is timed; the clock of what lies between runs faster or slower by as much as this
reference did, against its very first time. What is printed is in those seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from statistics import median
from typing import Any

from llmserve_lab.simulate import (
    Costs,
    Gamma,
    LogNormal,
    MeasuredMachine,
    Poisson,
    SharedPrefix,
    Simulator,
    Uniform,
    Workload,
    run_live,
)
from llmserve_lab.simulate.calibrate import Calibration
from llmserve_lab.simulate.clock import CpuClock, WaitingClock, WallClock

MODEL = "lab-target"
PROMPTS, OUTPUTS = Uniform(16, 128), Uniform(8, 128)
REQUESTS, WARM_UP = 64, 8
LOAD = 0.6  # of what the machine can do when all requests come at once
SLOWER = 1.05  # how much a machine is slowed to see what each metric makes of it
QUIET = 0.10  # live runs that differ by more say little about a simulator
Settings = dict[str, Any]  # of the engine
Case = tuple[Workload, Settings]
LIMITS = {"seconds": 0.10, "ttft_p50": 0.15, "ttft_p95": 0.15, "tpot_p50": 0.15, "tpot_p95": 0.15}
FIRST_ROUNDS = 2
REFERENCE_RUNS, REFERENCE_REQUESTS, REFERENCE_TOKENS = 3, 8, 64


class SteadyClock:
    """Another clock's seconds times `speed`."""

    def __init__(self, clock: WaitingClock) -> None:
        self._clock, self.speed = clock, 1.0

    def __call__(self) -> float:
        return self._clock() * self.speed

    def wait_until(self, seconds: float) -> None:
        self._clock.wait_until(seconds / self.speed)


class Reference:
    """A fixed batch, prefill and decode: how fast the machine is now, against the first time."""

    def __init__(self, clock: WaitingClock) -> None:
        from llmserve_lab import LLM, SamplingParams

        self._llm, self._clock = LLM(MODEL, num_blocks=128, clock=clock), clock
        ids = range(1, REFERENCE_TOKENS + 1)
        self._prompts = [{"prompt_token_ids": [n + i for i in ids]} for n in range(8)]
        self._params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
        self._run()  # warm up
        self.first = self._seconds()

    def speed(self) -> float:
        """1 is as fast as the first time, 0.9 takes 1/0.9 times as long."""
        return self.first / self._seconds()

    def _seconds(self) -> float:
        return median(self._run() for _ in range(REFERENCE_RUNS))

    def _run(self) -> float:
        began = self._clock()
        self._llm.generate(self._prompts[:REFERENCE_REQUESTS], self._params)
        return self._clock() - began


class Bench:
    """One machine: its clock, its reference, its calibration."""

    def __init__(self, wall: bool) -> None:
        clock: WaitingClock = WallClock() if wall else CpuClock()
        self.reference, self.clock = Reference(clock), SteadyClock(clock)
        self.calibration = Calibration(MODEL, clock=self.clock)
        self.speeds: list[float] = []

    def steadily(self, work: Callable[[], Any]) -> tuple[Any, float]:
        """The result of `work`, run on a clock corrected by the reference just before it; and by
        how much its times are still to be multiplied, from the reference just after it."""
        self.clock.speed = before = self.reference.speed()
        result = work()
        after = self.reference.speed()
        self.speeds += [before, after]
        return result, (before + after) / 2 / before

    def calibrate(self) -> None:
        measured, factor = self.steadily(self.calibration.measure)
        self.calibration.add(measured, factor)

    def live(self, llm: Any, workload: Workload, seed: int) -> dict[str, float]:
        result, factor = self.steadily(lambda: run_live(llm, workload, seed))
        return {metric: factor * result.summary()[metric] for metric in LIMITS}


def workloads(capacity: Callable[[Workload, Settings], float]) -> dict[str, Case]:
    """By name, with the settings of the engine. capacity: requests/s that the machine can do of a
    workload; each open loop asks for `LOAD` of its own."""

    def draw(make: Any, prompts: Any = PROMPTS, prefix: Any = None, **settings: Any) -> Case:
        def workload(arrivals: Any = None) -> Workload:
            return Workload.draw(REQUESTS, prompts, OUTPUTS, arrivals, prefix)

        return workload(make(LOAD * capacity(workload(), settings))), settings

    shared = SharedPrefix(Uniform(256, 256), count=2)
    return {
        "all at once": (Workload.draw(REQUESTS, PROMPTS, OUTPUTS), {}),
        "Poisson": draw(Poisson),
        "bursts": draw(lambda rate: Gamma(rate, 0.25)),
        "long prompts": draw(Poisson, LogNormal(300, 0.5, 64, 800)),
        "8 users": (Workload.closed_loop(REQUESTS, PROMPTS, OUTPUTS, users=8), {}),
        "shared prefix": draw(Poisson, prefix=shared, enable_prefix_caching=True),
    }


def accuracy(repeats: int, wall: bool, only: list[str] | None = None) -> dict[str, Any]:
    """Each workload `repeats` times on the real engine, a round of calibration before each, and
    once in simulation, with the costs of all rounds. only: names of workloads."""
    bench = Bench(wall)
    for _ in range(FIRST_ROUNDS):
        bench.calibrate()
    first = bench.calibration.machine()
    chosen = workloads(lambda work, given: Simulator(first, **given).run(work).request_throughput)
    chosen = {name: chosen[name] for name in only or chosen}
    live = {name: _live(bench, *chosen[name], repeats) for name in chosen}
    machine = bench.calibration.machine()
    rows = {name: _compare(machine, *chosen[name], live[name]) for name in chosen}
    found = _summary(bench, machine, rows) | {"clock": "wall" if wall else "CPU"}
    _print(found)
    return found


def _live(
    bench: Bench, workload: Workload, settings: dict[str, Any], repeats: int
) -> list[dict[str, float]]:
    """Rounds of calibration and live runs in turn, each run with other prompts, on one engine that
    a few requests have warmed up."""
    from llmserve_lab import LLM

    llm = LLM(MODEL, clock=bench.clock, **settings)
    run_live(llm, Workload(workload.asks[:WARM_UP], users=WARM_UP), seed=-1)
    found = []
    for seed in range(repeats):
        bench.calibrate()
        found.append(bench.live(llm, workload, seed))
        print(".", end="", flush=True)
    return found


def _compare(
    machine: MeasuredMachine,
    workload: Workload,
    settings: dict[str, Any],
    live: list[dict[str, float]],
) -> dict[str, Any]:
    """The median over the live runs against one simulation, which always ends alike; and what a
    slower machine would have done, since near its limit a little decides much."""
    summary = Simulator(machine, **settings).run(workload).summary()
    slowed = Simulator(_slower(machine), **settings).run(workload).summary()
    measured = {metric: median(run[metric] for run in live) for metric in LIMITS}
    ranges = {m: max(run[m] for run in live) - min(run[m] for run in live) for m in LIMITS}
    return {
        "live": measured,
        "simulated": {metric: summary[metric] for metric in LIMITS},
        "error": {metric: summary[metric] / measured[metric] - 1 for metric in LIMITS},
        "if_slower": {metric: slowed[metric] / summary[metric] - 1 for metric in LIMITS},
        "spread": {metric: ranges[metric] / measured[metric] for metric in LIMITS},
    }


def _slower(machine: MeasuredMachine) -> MeasuredMachine:
    costs = machine.costs
    small = tuple((tokens, SLOWER * seconds) for tokens, seconds in costs.small)
    named = {name: SLOWER * value for name, value in asdict(costs).items() if name != "small"}
    return replace(machine, costs=Costs(**named, small=small))


def _summary(
    bench: Bench, machine: MeasuredMachine, rows: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    import torch

    errors = {m: median(abs(row["error"][m]) for row in rows.values()) for m in LIMITS}
    spread = median(max(row["spread"].values()) for row in rows.values())
    return {
        "conditions": machine.conditions,
        "threads": torch.get_num_threads(),
        "reference": {"first_seconds": bench.reference.first, "slowest": min(bench.speeds),
                      "fastest": max(bench.speeds)},
        "quiet": spread <= QUIET,
        "spread": spread,
        "median_error": errors,
        "within": {metric: errors[metric] <= limit for metric, limit in LIMITS.items()},
        "workloads": rows,
    }  # fmt: skip


def _print(found: dict[str, Any]) -> None:
    reference = found["reference"]
    print(f"\n{MODEL} on {found['conditions']}, {found['clock']} time")
    print("Times are at the speed of the first reference batch; since then it ran at between")
    print(f"{reference['slowest']:.0%} and {reference['fastest']:.0%} of that speed.")
    for name, row in found["workloads"].items():
        print(name)
        for metric in LIMITS:
            live, simulated = row["live"][metric], row["simulated"][metric]
            print(
                f"  {metric:9} live {live:8.4f} s (within {row['spread'][metric]:4.0%})  "
                f"simulated {simulated:8.4f} s  {row['error'][metric]:+7.1%}   "
                f"if 5% slower {row['if_slower'][metric]:+4.0%}"
            )
    print("median error  ", *(f"{m} {e:.1%}" for m, e in found["median_error"].items()))
    verdict = "quiet" if found["quiet"] else "too noisy to judge"
    print(f"live runs of a workload differ by {found['spread']:.0%} (median): {verdict}")
