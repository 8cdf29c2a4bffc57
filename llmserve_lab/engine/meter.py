"""Counts what an engine does, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llmserve_lab.engine.engine_metrics import EngineMetrics
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled, Scheduler
from llmserve_lab.engine.work import ModelWork, Work

TOTALS = (
    "steps", "seconds", "forward_seconds", "sampling_seconds", "prompt_tokens",
    "generation_tokens", "computed_tokens", "scheduled_sequences", "max_batch_size", "finished",
    "aborted", "preemptions", "num_bytes", "flops", "draft_seconds", "drafted_sequences",
    "proposed_tokens", "judged_tokens", "accepted_tokens", "draft_bytes", "draft_flops",
)  # fmt: skip


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
        self._totals: dict[str, Any] = dict.fromkeys(TOTALS, 0)
        self._most_blocks = pool.num_used
        self._known_queries, self._known_hits = pool.prefix_cache_queries, pool.prefix_cache_hits

    def note_batch(self, batch: Sequence[Scheduled]) -> None:
        """Count a step's work, before its tokens are added to the requests."""
        totals = self._totals
        totals["steps"] += 1
        totals["scheduled_sequences"] += len(batch)
        totals["max_batch_size"] = max(totals["max_batch_size"], len(batch))
        totals["preemptions"] += len(self.scheduler.preempted)
        self._most_blocks = max(self._most_blocks, self.scheduler.pool.num_used)
        for item in batch:
            totals["computed_tokens"] += item.num_tokens
            if item.samples and item.request.num_output_tokens == 0:
                totals["prompt_tokens"] += item.request.num_prompt_tokens
        if self.work is not None:
            work = self.work.of_step(batch)
            totals["num_bytes"] += work.num_bytes
            totals["flops"] += work.flops

    def note_step(self, began: float, num_new_tokens: int) -> None:
        """Count a step's output and time, at its end."""
        self._totals["generation_tokens"] += num_new_tokens
        self._totals["seconds"] += self.clock() - began

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Add the time within to that of a part of the step: "draft", "forward" or "sampling"."""
        began = self.clock()
        yield
        self._totals[f"{part}_seconds"] += self.clock() - began

    def note_draft_work(self, work: Work) -> None:
        """Count what a step's drafts took."""
        self._totals["draft_bytes"] += work.num_bytes
        self._totals["draft_flops"] += work.flops

    def note_drafts(self, num_proposed: int, num_accepted: int) -> None:
        """Count what became of a request's drafts. Those after the first wrong one were not
        judged."""
        totals = self._totals
        totals["drafted_sequences"] += 1
        totals["proposed_tokens"] += num_proposed
        totals["judged_tokens"] += min(num_accepted + 1, num_proposed)
        totals["accepted_tokens"] += num_accepted

    def note_end(self, request: Request) -> None:
        """Count a request that has ended."""
        self._totals["aborted" if request.finish_reason == "abort" else "finished"] += 1

    def snapshot(self) -> EngineMetrics:
        """The numbers so far."""
        pool = self.scheduler.pool
        return EngineMetrics(
            **self._totals,
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            kv_blocks=pool.num_blocks,
            kv_blocks_used=pool.num_used,
            peak_kv_blocks_used=self._most_blocks,
            prefix_queries=pool.prefix_cache_queries - self._known_queries,
            prefix_hits=pool.prefix_cache_hits - self._known_hits,
        )
