"""How well and how fast the simulator simulates: `python -m benchmarks.simulator --help`.

accuracy   calibrates this machine, serves several workloads on the real engine and in simulation,
           and prints both with the error of each metric by itself
speed      simulates 100,000 requests
soak       simulates 20,000 requests whose clients leave at random; the pool must be as new
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from llmserve_lab.simulate import (
    GPUS,
    Deployment,
    Gamma,
    LoadResult,
    LogNormal,
    MeasuredMachine,
    ModelSize,
    Poisson,
    SharedPrefix,
    Simulator,
    Uniform,
    Workload,
    calibrate,
    run_live,
)
from llmserve_lab.simulate.clock import CpuClock

RESULTS = Path(__file__).parent / "results"
MODEL = "lab-target"
PROMPTS, OUTPUTS = Uniform(16, 128), Uniform(8, 128)
REQUESTS = 64
LOAD = 0.6  # of what the machine can do
QUIET = 0.05  # live runs that differ by more say nothing about a simulator
LIMITS = {"seconds": 0.10, "ttft_p50": 0.15, "ttft_p95": 0.15, "tpot_p50": 0.15, "tpot_p95": 0.15}
SOAK, MANY = 20_000, 100_000


def workloads(rate: float) -> dict[str, tuple[Workload, dict[str, Any]]]:
    """By name, with the settings of the engine. rate: requests/s of the open loops."""

    def draw(arrivals: Any = None, prompts: Any = PROMPTS, prefix: Any = None) -> Workload:
        return Workload.draw(REQUESTS, prompts, OUTPUTS, arrivals, prefix)

    closed = Workload.closed_loop(REQUESTS, PROMPTS, OUTPUTS, users=8)
    shared = SharedPrefix(Uniform(256, 256), count=2)
    return {
        "all at once": (draw(), {}),
        "Poisson": (draw(Poisson(rate)), {}),
        "bursts": (draw(Gamma(rate, 0.25)), {}),
        "long prompts": (draw(Poisson(rate / 3), LogNormal(300, 0.5, 64, 800)), {}),
        "8 users": (closed, {}),
        "shared prefix": (draw(Poisson(rate), prefix=shared), {"enable_prefix_caching": True}),
    }


def soak_workload(count: int) -> Workload:
    """Random lengths, bursts and shared prefixes; a third of the clients leave."""
    prefix = SharedPrefix(Uniform(1, 20), count=5, share=0.5, skew=1.0)
    prompts, outputs = LogNormal(12, 1, 1, 90), LogNormal(6, 1, 1, 40)
    drawn = Workload.draw(count, prompts, outputs, Gamma(0.18, 0.5), prefix)
    return drawn.with_leavers(share=1 / 3, patience=30.0)


def accuracy(seconds: float, clock: Callable[[], float], each: bool) -> dict[str, Any]:
    """Calibrate, then serve each workload twice on the real engine and once in simulation. each:
    calibrate again before every workload."""
    import torch

    machine = calibrate(MODEL, seconds, clock=clock)
    kind = "CPU" if isinstance(clock, CpuClock) else "wall"
    print(f"{MODEL} on {machine.conditions}, {kind} time; each first run only warms up")
    at_once = Simulator(machine).run(workloads(1.0)["all at once"][0])
    rows = {}
    for name, (workload, settings) in workloads(LOAD * at_once.request_throughput).items():
        machine = calibrate(MODEL, seconds, clock=clock) if each else machine
        rows[name] = _compare(machine, workload, settings | {"clock": clock})
        _print_row(name, rows[name])
    worst_spread = max(row["live_spread"] for row in rows.values())
    errors = {m: median(abs(row["error"][m]) for row in rows.values()) for m in LIMITS}
    quiet = worst_spread <= QUIET
    print(f"{'median error':14}", *(f"{m} {e:6.1%}" for m, e in errors.items()))
    print(
        f"live runs repeat within {worst_spread:.0%}:", "quiet" if quiet else "too noisy to judge"
    )
    return {
        "conditions": machine.conditions, "clock": kind,
        "threads": torch.get_num_threads(), "quiet": quiet,
        "median_error": errors, "within": {m: errors[m] <= limit for m, limit in LIMITS.items()},
        "workloads": rows,
    }  # fmt: skip


def _compare(
    machine: MeasuredMachine, workload: Workload, settings: dict[str, Any]
) -> dict[str, Any]:
    """The first live run warms up; the mean of the second and third counts."""
    from llmserve_lab import LLM

    live = [_figures(run_live(LLM(MODEL, **settings), workload)) for _ in range(3)][1:]
    settings.pop("clock")
    simulated = _figures(Simulator(machine, **settings).run(workload))
    measured = {m: (live[0][m] + live[1][m]) / 2 for m in LIMITS}
    return {
        "live": measured,
        "simulated": simulated,
        "error": {m: simulated[m] / measured[m] - 1 for m in LIMITS},
        "live_spread": max(abs(live[0][m] - live[1][m]) / measured[m] for m in LIMITS),
    }


def _figures(result: LoadResult) -> dict[str, float]:
    summary = result.summary()
    return {metric: summary[metric] for metric in LIMITS}


def _print_row(name: str, row: dict[str, Any]) -> None:
    print(f"{name:14} live runs differ by up to {row['live_spread']:.0%}")
    for metric in LIMITS:
        live, simulated, error = (row[kind][metric] for kind in ("live", "simulated", "error"))
        print(f"  {metric:9} live {live:8.4f} s  simulated {simulated:8.4f} s  {error:+7.1%}")


def speed(count: int) -> dict[str, Any]:
    """Simulate `count` requests to an 8B model on an A100; wall and CPU seconds."""
    deployment = Deployment(ModelSize.llama3_8b(), GPUS["A100"], overhead=1e-3)
    prompts, outputs = LogNormal(100, 0.8, 1, 2000), LogNormal(30, 0.6, 1, 300)
    workload = Workload.draw(count, prompts, outputs, Poisson(30.0))
    began, used = time.perf_counter(), time.process_time()
    result = Simulator(deployment, max_num_seqs=256).run(workload)
    took = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
    tokens, steps = result.num_output_tokens, result.num_steps
    print(f"{count} requests, {tokens} output tokens, {steps} steps: {took['seconds']:.1f} s here")
    print(f"({took['cpu_seconds']:.1f} s of CPU time) for {result.seconds:.0f} virtual seconds")
    return took | {"requests": count, "output_tokens": tokens, "steps": steps}


def soak(count: int) -> dict[str, Any]:
    """With and without prefix caching."""
    machine, found = RoundMachine(), {}
    for caching in (False, True):
        simulator = Simulator(
            machine, num_blocks=60, block_size=4, max_num_seqs=16, enable_prefix_caching=caching
        )
        result = simulator.run(soak_workload(count))
        simulator.pool.check_integrity()
        assert simulator.pool.num_used == 0 and not simulator.engine.has_work
        assert len(result.outcomes) == count
        found[f"prefix caching {caching}"] = {
            "finished": len(result.finished), "preemptions": result.num_preemptions,
            "steps": result.num_steps, "hit_rate": result.hit_rate,
        }  # fmt: skip
    print(json.dumps(found, indent=2))
    return found


class RoundMachine:
    """A step takes one second, and an eighth per token."""

    def seconds(self, load: Any) -> float:
        return 1 + load.tokens / 8

    def num_blocks(self, block_size: int) -> int:
        return 64

    def copy_seconds(self, num_tokens: int) -> float:
        return num_tokens / 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["accuracy", "speed", "soak"])
    parser.add_argument("--seconds", type=float, default=20.0, help="of calibration")
    parser.add_argument("--count", type=int, help="requests of speed and soak")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--cpu-time", action="store_true", help="instead of wall time")
    parser.add_argument("--each", action="store_true", help="calibrate before every workload")
    parser.add_argument("--save", action="store_true", help="keep the result as JSON")
    chosen = parser.parse_args()
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "accuracy": lambda: accuracy(
            chosen.seconds, CpuClock() if chosen.cpu_time else time.perf_counter, chosen.each
        ),
        "speed": lambda: speed(chosen.count or MANY),
        "soak": lambda: soak(chosen.count or SOAK),
    }
    if chosen.what == "accuracy":
        import torch

        torch.set_num_threads(chosen.threads)
    result = runs[chosen.what]()
    if chosen.save:
        _save(chosen.what, result)


def _save(what: str, result: dict[str, Any]) -> None:
    if not result.get("quiet", True):
        raise SystemExit(
            "Not saved: the live runs differed too much. Try again on a quiet machine."
        )
    RESULTS.mkdir(exist_ok=True)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"when": when, "cores": os.cpu_count(), **result}
    path = RESULTS / f"simulator_{what}.json"
    path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(f"Saved as {path}.")


if __name__ == "__main__":
    main()
