"""A service on which a scheduler is tried: no model, no clock of the machine, always the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from llmserve_lab.course.checks.ledger import VOCABULARY, Ledger, answer_of
from llmserve_lab.course.checks.watched import RuleBroken, watched
from llmserve_lab.course.own_scheduler import OwnScheduler
from llmserve_lab.engine.batch import Limits
from llmserve_lab.engine.core import Engine
from llmserve_lab.engine.errors import SchedulerError
from llmserve_lab.engine.scheduler import Scheduler
from llmserve_lab.engine.static_scheduler import StaticBatchingScheduler
from llmserve_lab.kv_cache import BlockPool
from llmserve_lab.simulate import LoadResult, Workload
from llmserve_lab.simulate.clock import VirtualClock
from llmserve_lab.simulate.load_run import LoadRun
from llmserve_lab.simulate.prompts import RandomPrompts

BLOCK_SIZE = 4


@dataclass(frozen=True, slots=True, repr=False)
class Trial:
    """`workload`, its arrivals in steps, for `slots` requests and `budget` tokens in a step on
    `num_blocks` blocks of 4 tokens. gain: how many times the throughput of static batching, in
    tokens per step, is asked for; None where only the rules count."""

    workload: Workload
    slots: int
    budget: int
    num_blocks: int
    gain: float | None = None

    def __repr__(self) -> str:
        lengths = [(ask.prompt_tokens, ask.output_tokens) for ask in self.workload.asks]
        return (
            f"{len(lengths)} requests, {self.slots} places, {self.budget} tokens a step, "
            f"{self.num_blocks} blocks, (prompt, answer) tokens {lengths}"
        )

    def fault(self, kind: type[OwnScheduler]) -> str | None:
        """What is wrong with a scheduler here, as the end of a sentence; None if nothing is.

        Raises:
            NotImplementedError: from a plan that is not written yet.
        """
        try:
            result, tokens = self._run(watched(kind))
        except NotImplementedError:
            raise
        except RuleBroken as error:
            return str(error)
        except SchedulerError as error:
            return f"the engine refuses a step: {str(error).rstrip('.')}"
        return self._wrong_answer(tokens) or self._too_slow(result)

    def _run(self, scheduler: Scheduler) -> tuple[LoadResult, dict[str, list[int]]]:
        clock = VirtualClock()
        longest = self.num_blocks * BLOCK_SIZE
        ledger: Any = Ledger(clock, self.num_blocks, BLOCK_SIZE)
        pool = BlockPool(self.num_blocks, BLOCK_SIZE)
        scheduler.bind(pool, Limits(self.slots, self.budget, longest), clock)
        engine = Engine(ledger, scheduler, ledger, None, longest, clock)
        result = LoadRun(engine, clock, RandomPrompts(VOCABULARY), self.workload).run()
        return result, ledger.tokens

    def _wrong_answer(self, tokens: dict[str, list[int]]) -> str | None:
        make = RandomPrompts(VOCABULARY).make
        for number, ask in enumerate(self.workload.asks, 1):
            expected = answer_of(make(ask, number), ask.output_tokens)
            if tokens.get(f"load-{number}") != expected:
                return f"expected of request {number} other tokens than it got: its answer changes"
        return None

    def _too_slow(self, result: LoadResult) -> str | None:
        if self.gain is None:
            return None
        static = static_steps(self)
        if result.num_steps * self.gain <= static:
            return None
        return (
            f"expected at most {int(static / self.gain)} steps, {self.gain:g} times the "
            f"throughput of static batching ({static} steps), got {result.num_steps} steps"
        )


@lru_cache(maxsize=1024)
def static_steps(trial: Trial) -> int:
    """Steps of static batching on this service, in batches of all its places."""
    result, _ = trial._run(StaticBatchingScheduler(trial.slots))
    return result.num_steps
