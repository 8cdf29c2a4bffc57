"""A service to try with any limit on its batch, on a virtual clock: it always does the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from llmserve_lab.course.step_cost import StepCost
from llmserve_lab.course.two_part_machine import TwoPartMachine
from llmserve_lab.simulate import LogNormal, Poisson, Simulator, Workload

KEPT_RUNS = 4096
PROMPT_TOKENS, ANSWER_TOKENS = (32, 0.4, 8, 96), (8, 0.4, 3, 16)  # of `LogNormal`


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a service's requests. waits: (TTFT, TPOT) of each, in seconds. seconds: of the
    whole run, until the last token. largest: requests that shared a step, at most."""

    seconds: float
    waits: tuple[tuple[float, float], ...]
    steps: int
    largest: int


@dataclass(frozen=True, slots=True)
class Service:
    """`count` requests at `rate` per second (a Poisson process), or all at once where `rate` is
    infinite, to a machine with a two-part step cost. Times are those of the machine's formula."""

    fixed: float
    each: float
    rate: float
    count: int = 24
    prompt_token: float = 0.0
    seed: int = 0

    def run(self, limit: int) -> Run:
        """Serve them, at most `limit` in a step: the engine's scheduler on a virtual clock.

        Raises:
            ValueError, TypeError: `limit` is no batch size.
        """
        return _run(self, limit)

    def workload(self) -> Workload:
        """The requests, for `run_live` or a simulator of your own."""
        arrivals = Poisson(self.rate) if math.isfinite(self.rate) else None
        lengths = LogNormal(*PROMPT_TOKENS), LogNormal(*ANSWER_TOKENS)
        return Workload.draw(self.count, *lengths, arrivals, seed=self.seed)


@lru_cache(maxsize=KEPT_RUNS)
def _run(service: Service, limit: int) -> Run:
    machine = TwoPartMachine(StepCost(service.fixed, service.each), service.prompt_token)
    simulator = Simulator(machine, max_num_seqs=limit)
    result = simulator.run(service.workload())
    waits = tuple((float(m.ttft or 0), float(m.tpot or 0)) for m in result.finished)
    largest = simulator.engine.meter.snapshot().max_batch_size
    return Run(result.seconds, waits, result.num_steps, largest)
