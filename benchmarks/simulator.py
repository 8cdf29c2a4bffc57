"""How well and how fast the simulator simulates: `python -m benchmarks.simulator --help`.

accuracy   calibrates this machine, serves several workloads on the real engine and in simulation,
           and prints both with the error of each metric by itself (about five minutes)
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
from typing import Any

from llmserve_lab.simulate import (
    GPUS,
    Deployment,
    Gamma,
    LogNormal,
    ModelSize,
    Poisson,
    SharedPrefix,
    Simulator,
    Uniform,
    Workload,
)

RESULTS = Path(__file__).parent / "results"
MODEL = "lab-target"
PROMPTS, OUTPUTS = Uniform(16, 128), Uniform(8, 128)
SOAK, MANY = 20_000, 100_000


def soak_workload(count: int) -> Workload:
    """Random lengths, bursts and shared prefixes; a third of the clients leave."""
    prefix = SharedPrefix(Uniform(1, 20), count=5, share=0.5, skew=1.0)
    prompts, outputs = LogNormal(12, 1, 1, 90), LogNormal(6, 1, 1, 40)
    drawn = Workload.draw(count, prompts, outputs, Gamma(0.18, 0.5), prefix)
    return drawn.with_leavers(share=1 / 3, patience=30.0)


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
    parser.add_argument("--count", type=int, help="requests of speed and soak")
    parser.add_argument("--repeats", type=int, default=3, help="live runs of each workload")
    parser.add_argument("--only", nargs="+", help="workloads of accuracy, by name")
    parser.add_argument("--threads", type=int, default=1, help="of torch; above 1 in wall time")
    parser.add_argument("--wall", action="store_true", help="wall time instead of CPU time")
    parser.add_argument("--save", action="store_true", help="keep the result as JSON")
    chosen = parser.parse_args()
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "accuracy": lambda: _accuracy(chosen),
        "speed": lambda: speed(chosen.count or MANY),
        "soak": lambda: soak(chosen.count or SOAK),
    }
    result = runs[chosen.what]()
    if chosen.save:
        _save(chosen.what, result)


def _accuracy(chosen: argparse.Namespace) -> dict[str, Any]:
    """CPU time speaks of one thread only, but of that one whatever else the machine does."""
    import torch

    from benchmarks.simulator_accuracy import accuracy

    torch.set_num_threads(chosen.threads)
    return accuracy(chosen.repeats, chosen.wall or chosen.threads > 1, chosen.only)


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
