"""A server with a bottleneck, to try strategies on: the engine's loop on a virtual clock."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from llmserve_lab.course.strategies import CONTINUOUS, QUANTIZED, REUSE, SPECULATIVE, STRATEGIES
from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduler
from llmserve_lab.engine.static_scheduler import StaticBatchingScheduler
from llmserve_lab.engine.step_load import StepLoad
from llmserve_lab.engine.work import Work
from llmserve_lab.kv_cache import KVShape
from llmserve_lab.simulate import (
    GPUS,
    Constant,
    Deployment,
    ModelSize,
    Poisson,
    SharedPrefix,
    Simulator,
    Uniform,
    Workload,
)
from llmserve_lab.simulate.cost_runner import CostRunner
from llmserve_lab.speculative.speculation import Drafts

KEPT_RUNS = 4096
DRAFTS = 4
RIGHT, WRONG = 0, 1  # a simulated model always chooses token 0
DRAFT_SIZE = ModelSize("a draft of 1B", 1_235_814_400, 2048, KVShape(16, 8, 64))
Measures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Bench:
    """`count` requests at `rate` per second, or all at once, to Llama-3.1-8B on one GPU.

    shared: prompt tokens that all have in common, beside `own` ones. answers: shortest and longest.
    places: requests in a batch at most. alpha: how often a draft is right.
    """

    shared: int
    own: int
    answers: tuple[int, int]
    places: int
    count: int = 16
    rate: float | None = None
    alpha: float = 0.7
    gpu: str = "A100"
    seed: int = 0

    def run(self, strategy: str | None = None) -> Measures:
        """Serve them with one strategy switched on, or none. Returns medians and totals: `first`,
        seconds until the first token; `pace`, seconds per token after it; `throughput`, tokens per
        second; `memory`, the most GiB that weights and KV cache took. Always the same.

        Raises:
            ValueError: there is no such strategy.
        """
        if strategy is not None and strategy not in STRATEGIES:
            raise ValueError(f"There is no {strategy!r}; there are {', '.join(STRATEGIES)}.")
        return dict(_run(self, strategy))

    def workload(self) -> Workload:
        """The requests."""
        prefix = SharedPrefix(Constant(self.shared)) if self.shared else None
        arrivals = None if self.rate is None else Poisson(self.rate)
        lengths = Constant(self.own), Uniform(*self.answers)
        return Workload.draw(self.count, *lengths, arrivals, seed=self.seed, prefix=prefix)


class GuessedRight:
    """Drafts that are right with probability alpha, each for itself, by a number of its own."""

    done = Work(0, 0)

    def __init__(self, alpha: float, draft: Deployment, clock: Any, seed: int) -> None:
        self.alpha, self.model, self.clock, self.seed = alpha, draft, clock, seed

    def draft(self, batch: Sequence[Scheduled], room: dict[Request, int]) -> dict[Request, Any]:
        self.clock.advance(self.model.seconds(StepLoad.of(batch)))
        for request, most in room.items():
            request.draft_token_ids = [self._guess(request, place) for place in range(most)]
        for place in range(1, max(room.values(), default=0)):
            left = [len(r.token_ids) + place for r, most in room.items() if most > place]
            context = round(sum(left) / len(left))
            self.clock.advance(self.model.seconds(StepLoad.decode(len(left), context)))
        return {}

    def num_computed(self, num_accepted: int, num_drafts: int) -> int:
        return min(num_accepted, num_drafts - 1)

    def _guess(self, request: Request, place: int) -> int:
        name = f"{self.seed}/{request.request_id}/{len(request.token_ids) + place}"
        return RIGHT if random.Random(name).random() < self.alpha else WRONG


class Rows:
    """Logits of so many rows, of which only the number is known."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: list[int]) -> Rows:
        return Rows(len(rows))


class RowRunner(CostRunner):
    """A `CostRunner` whose logits have rows, for drafts to be checked by."""

    def run(self, batch: list[Scheduled]) -> Any:
        super().run(batch)
        return Rows(sum(item.num_rows for item in batch))


@lru_cache(maxsize=KEPT_RUNS)
def _run(bench: Bench, strategy: str | None) -> tuple[tuple[str, float], ...]:
    size = ModelSize.llama3_8b()
    if strategy == QUANTIZED:
        size = replace(size, bytes_per_value=1.0)
    machine = Deployment(size, GPUS[bench.gpu])
    static = StaticBatchingScheduler(bench.places)
    simulator = Simulator(
        machine,
        scheduler=Scheduler() if strategy == CONTINUOUS else static,
        max_num_seqs=bench.places,
        enable_prefix_caching=strategy == REUSE,
    )
    if strategy == SPECULATIVE:
        _speculate(simulator, machine, bench)
    result = simulator.run(bench.workload())
    held = simulator.engine.meter.snapshot().peak_kv_blocks_used * simulator.pool.block_size
    taken = size.weight_bytes + size.kv_bytes(held)
    if strategy == SPECULATIVE:
        taken += DRAFT_SIZE.weight_bytes + DRAFT_SIZE.kv_bytes(held)
    return (
        ("first", result.percentile("ttft", 50)),
        ("pace", result.percentile("tpot", 50)),
        ("throughput", result.output_throughput),
        ("memory", taken / 2**30),
    )


def _speculate(simulator: Simulator, machine: Deployment, bench: Bench) -> None:
    draft = Deployment(DRAFT_SIZE, GPUS[bench.gpu])
    drafter = GuessedRight(bench.alpha, draft, simulator.clock, bench.seed)
    runner: Any = RowRunner(machine, simulator.clock)
    engine = simulator.engine
    engine.runner = engine.sampler = runner
    engine.speculation = Drafts(drafter, simulator.scheduler, DRAFTS)
