"""A workload on the real engine, on a clock that counts steps: what a scheduler does, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from llmserve_lab.simulate import LoadResult, Poisson, Workload
from llmserve_lab.simulate.clock import VirtualClock
from llmserve_lab.simulate.lengths import Lengths
from llmserve_lab.simulate.load_result import percentile
from llmserve_lab.simulate.prompts import RandomPrompts

if TYPE_CHECKING:
    from llmserve_lab.engine.scheduler import Scheduler
    from llmserve_lab.engine.trace import Trace


@dataclass(frozen=True, slots=True)
class Life:
    """One request; all times in steps from the start. started: of the first step that ran it.
    first, ended: the end of the step that gave its first and its last token."""

    arrival: float
    started: float
    first: float
    ended: float

    @property
    def wait(self) -> float:
        """From its arrival to its first token: TTFT, in steps."""
        return self.first - self.arrival


@dataclass(frozen=True, slots=True)
class StepRun:
    """A run of `slots` places. lives: in order of arrival; prompts, tokens: of each of them. steps:
    that ran anything. preemptions, computed: requests sent back, and tokens run, over all steps."""

    slots: int
    lives: tuple[Life, ...]
    prompts: tuple[list[int], ...]
    tokens: tuple[tuple[int, ...], ...]
    steps: int
    preemptions: int
    computed: int
    most_together: int
    trace: Trace

    @property
    def num_tokens(self) -> int:
        """Output tokens of all requests."""
        return sum(map(len, self.tokens))

    @property
    def end(self) -> float:
        """The step after which everybody has all tokens."""
        return max(life.ended for life in self.lives)

    @property
    def tokens_per_step(self) -> float:
        return self.num_tokens / self.steps

    @property
    def in_use(self) -> float:
        """The share of places that held a request, over all steps that ran."""
        return sum(len(step.scheduled) for step in self.trace) / (self.slots * self.steps)

    @property
    def joined(self) -> int:
        """Requests that started while another one was under way."""
        return sum(
            any(other.started < life.started < other.ended for other in self.lives)
            for life in self.lives
        )

    @property
    def wasted(self) -> int:
        """Empty places, counted in each step and only while somebody waits for one."""
        every = range(int(self.end))
        return sum(min(self.slots - self.running(k), self.waiting(k)) for k in every)

    def running(self, step: float) -> int:
        """Requests between their first step and their last token."""
        return sum(life.started <= step < life.ended for life in self.lives)

    def waiting(self, step: float) -> int:
        """Requests that have come and were not started yet."""
        return sum(life.arrival <= step < life.started for life in self.lives)

    def wait(self, percent: float) -> float:
        """A percentile of the steps until the first token."""
        return percentile(sorted(life.wait for life in self.lives), percent)

    def latency(self, percent: float) -> float:
        """A percentile of the steps from the arrival to the last token."""
        return percentile(sorted(life.ended - life.arrival for life in self.lives), percent)

    def __str__(self) -> str:
        return (
            f"{self.num_tokens} tokens in {self.steps:>3} steps, {self.tokens_per_step:.2f} a "
            f"step; median TTFT {median(life.wait for life in self.lives):.3g}"
        )


class SteppedRunner:
    """Runs the model; each step takes one unit of `clock`, however long it is."""

    def __init__(self, runner: Any, clock: VirtualClock) -> None:
        self.cache, self._runner, self._clock = runner.cache, runner, clock

    def run(self, batch: list[Any]) -> Any:
        logits = self._runner.run(batch)
        self._clock.advance(1.0)
        return logits


def serve_in_steps(
    model: Any,
    workload: Workload,
    scheduler: Scheduler | None = None,
    slots: int = 4,
    **settings: Any,
) -> StepRun:
    """Serve random prompts of the workload's lengths, greedily and to their full length. Arrivals,
    and a scheduler's `max_wait`, are in steps.

    model: what `load` returned. slots: requests in a step at most. settings: of `LLM`.
    """
    from llmserve_lab import LLM
    from llmserve_lab.simulate import run_live

    clock = VirtualClock()
    llm = LLM(
        model, scheduler=scheduler, max_num_seqs=slots, clock=clock, trace=True, **settings
    )  # fmt: skip
    runner: Any = SteppedRunner(llm._engine.runner, clock)
    llm._engine.runner = runner
    result = run_live(llm, workload)
    done = llm.metrics
    tokens = _tokens(llm.trace, len(workload.asks))
    make = RandomPrompts(llm.model.config.get_text_config().vocab_size).make
    prompts = tuple(make(ask, place + 1) for place, ask in enumerate(workload.asks))
    return StepRun(
        slots, lives(result), prompts, tokens, result.num_steps, done.preemptions,
        done.computed_tokens, done.max_batch_size, llm.trace,
    )  # fmt: skip


def lives(result: LoadResult) -> tuple[Life, ...]:
    """Each request of a run, live or simulated, in order of arrival."""
    found = {_place(outcome.request_id): outcome.metrics for outcome in result.outcomes}
    return tuple(
        Life(m.arrival, float(m.first_scheduled or 0), m.token_times[0], m.token_times[-1])
        for _, m in sorted(found.items())
    )


def arrive_in_steps(
    count: int, prompts: Lengths, outputs: Lengths, rate: float, seed: int = 0
) -> Workload:
    """`count` requests that come at random, `rate` per step on average, each at a whole step."""
    drawn = Workload.draw(count, prompts, outputs, Poisson(rate), seed=seed)
    return Workload(
        tuple(replace(ask, arrival=float(math.ceil(ask.arrival))) for ask in drawn.asks)
    )


def _tokens(trace: Trace, count: int) -> tuple[tuple[int, ...], ...]:
    made: list[list[int]] = [[] for _ in range(count)]
    for step in trace:
        for token in step.sampled:
            made[_place(token.request_id)].append(token.token_id)
    return tuple(map(tuple, made))


def _place(request_id: str) -> int:
    """The place in order of arrival, from the name that a load run gives: "load-1" is the first."""
    return int(request_id.rpartition("-")[2]) - 1


def same_tokens(runs: Sequence[StepRun]) -> bool:
    """Whether every request got the same tokens in each run."""
    return len({run.tokens for run in runs}) == 1
