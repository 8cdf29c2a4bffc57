"""Counts what an engine does, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llmserve_lab.engine.engine_metrics import EngineMetrics
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled, Scheduler
from llmserve_lab.engine.work import ModelWork


class Meter:
    """Adds up steps. scheduler: bound to its pool. clock: the engine's. work: of the model, if
    there is one."""

    def __init__(
        self, scheduler: Scheduler, clock: Callable[[], float], work: ModelWork | None = None
    ) -> None:
        self.scheduler, self.clock, self.work = scheduler, clock, work
        self.reset()

    def reset(self) -> None:
        """Begin again, as after a warm-up."""
        pool = self.scheduler.pool
        self._seconds = dict.fromkeys(("step", "forward", "sampling"), 0.0)
        self._steps = self._sequences = self._largest = 0
        self._prompt = self._generated = self._computed = 0
        self._finished = self._aborted = self._preemptions = 0
        self._bytes = self._flops = 0
        self._most_blocks = pool.num_used
        self._known_lookups = pool.prefix_cache_queries, pool.prefix_cache_hits

    def note_batch(self, batch: Sequence[Scheduled]) -> None:
        """Count a step's work, before its tokens are added to the requests."""
        self._steps += 1
        self._sequences += len(batch)
        self._largest = max(self._largest, len(batch))
        self._preemptions += len(self.scheduler.preempted)
        self._most_blocks = max(self._most_blocks, self.scheduler.pool.num_used)
        for item in batch:
            self._computed += item.num_tokens
            if item.samples and item.request.num_output_tokens == 0:
                self._prompt += item.request.num_prompt_tokens
        if self.work is not None:
            work = self.work.of_step(batch)
            self._bytes += work.num_bytes
            self._flops += work.flops

    def note_step(self, began: float, num_new_tokens: int) -> None:
        """Count a step's output and time, at its end."""
        self._generated += num_new_tokens
        self._seconds["step"] += self.clock() - began

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Add the time within to that of a part of the step: "forward" or "sampling"."""
        began = self.clock()
        yield
        self._seconds[part] += self.clock() - began

    def note_end(self, request: Request) -> None:
        """Count a request that has ended."""
        self._aborted += request.finish_reason == "abort"
        self._finished += request.finish_reason != "abort"

    def snapshot(self) -> EngineMetrics:
        """The numbers so far."""
        pool, (queries, hits) = self.scheduler.pool, self._known_lookups
        return EngineMetrics(
            steps=self._steps,
            seconds=self._seconds["step"],
            forward_seconds=self._seconds["forward"],
            sampling_seconds=self._seconds["sampling"],
            prompt_tokens=self._prompt,
            generation_tokens=self._generated,
            computed_tokens=self._computed,
            scheduled_sequences=self._sequences,
            max_batch_size=self._largest,
            finished=self._finished,
            aborted=self._aborted,
            preemptions=self._preemptions,
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            kv_blocks=pool.num_blocks,
            kv_blocks_used=pool.num_used,
            peak_kv_blocks_used=self._most_blocks,
            prefix_queries=pool.prefix_cache_queries - queries,
            prefix_hits=pool.prefix_cache_hits - hits,
            num_bytes=self._bytes,
            flops=self._flops,
        )
