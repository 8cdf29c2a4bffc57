"""What scheduling costs: milliseconds a step, at 256 running requests unless told otherwise.

    python -m benchmarks.scheduler [--running 256] [--queued 0 100000] [--steps 300] [--json FILE]

A step is `schedule`, `validate`, the watchdog and `commit`: all that the engine's loop does besides
model, sampler and text. Pure Python on one core; the aim is 0.3 ms at the minimum.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from llmserve_lab.engine.preemption import SwapToHost
from llmserve_lab.engine.priority import PriorityScheduler
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.engine.scheduler import Limits, Scheduler
from llmserve_lab.engine.static_scheduler import StaticBatchingScheduler
from llmserve_lab.engine.validate import validate
from llmserve_lab.engine.watchdog import Watchdog
from llmserve_lab.kv_cache import BlockPool
from llmserve_lab.machine import processor_name, usable_cores

BLOCK_SIZE = 16
PROMPT_TOKENS = 100
MAX_TOKENS = 4096
AIM_MS = 0.3
MS = 1e3


class NoCopies:
    """A store for swapping that copies nothing."""

    def read_blocks(self, blocks: list[int]) -> None: ...

    def write_blocks(self, blocks: list[int], content: None) -> None: ...

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None: ...


def kinds(running: int) -> dict[str, Callable[[], Scheduler]]:
    return {
        "first come, first served": Scheduler,
        "with swapping": lambda: Scheduler(SwapToHost(num_blocks=1000)),
        "priority": PriorityScheduler,
        "static batches": lambda: StaticBatchingScheduler(batch_size=running),
    }


def step_times(scheduler: Scheduler, running: int, queued: int, steps: int) -> Iterator[float]:
    """Seconds of each decode step while `queued` requests wait."""
    blocks = running * -(-(PROMPT_TOKENS + steps + 1) // BLOCK_SIZE)
    scheduler.bind(
        BlockPool(blocks, BLOCK_SIZE), Limits(running, 10**9), time.perf_counter, NoCopies()
    )
    requests = {}
    for number in range(running + queued):
        request = Request(f"{number}", [1] * PROMPT_TOKENS, SamplingParams(max_tokens=steps + 1))
        requests[request.request_id] = request
        scheduler.add(request)
    watchdog = Watchdog()
    for _ in range(steps):
        began = time.perf_counter()
        batch = scheduler.schedule()
        validate(batch, scheduler, requests)
        watchdog.note(batch, requests)
        scheduler.commit(batch)
        yield time.perf_counter() - began
        assert len(batch) == running
        for item in batch:
            item.request.token_ids.append(1)


def measure(running: int, queued: int, steps: int) -> list[dict]:
    rows = []
    for name, make in kinds(running).items():
        decode = list(step_times(make(), running, queued, steps))[1:]
        rows.append({
            "scheduler": name, "running": running, "queued": queued,
            "min_ms": min(decode) * MS, "median_ms": statistics.median(decode) * MS,
        })  # fmt: skip
    return rows


def machine() -> str:
    return f"{processor_name()}, {usable_cores()} cores, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--queued", type=int, nargs="+", default=[0, 100_000])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    asked = parser.parse_args()
    print(f"{machine()}; ms a step, {asked.steps} steps; aim: {AIM_MS} at the minimum")
    print(f"{'scheduler':28}{'running':>8}{'queued':>8}{'min':>8}{'median':>8}")
    rows = [row for queued in asked.queued for row in measure(asked.running, queued, asked.steps)]
    for row in rows:
        counts = f"{row['running']:8}{row['queued']:8}"
        print(f"{row['scheduler']:28}{counts}{row['min_ms']:8.3f}{row['median_ms']:8.3f}")
    if asked.json:
        asked.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
