"""Static batching: what servers did before iteration-level scheduling, for comparison."""

from __future__ import annotations

import math
from typing import Any

from llmserve_lab.engine.checks import require_count, require_number
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Limits, Scheduled, Scheduler
from llmserve_lab.kv_cache import BlockAllocator


class StaticBatchingScheduler(Scheduler):
    """Collects requests into a batch, runs all of them until the longest ends, then collects again.

    A batch starts once `batch_size` requests wait or the oldest has waited `max_wait` seconds. It
    holds no more requests than fit at their greatest length, so none is ever preempted. All
    prompts are computed before anybody's second token. A request that ends early gives back its
    blocks, but nobody takes its place before the whole batch is done.
    """

    can_fork = False  # every continuation is in the batch from the start, or in a later one

    def __init__(self, batch_size: int = 8, max_wait: float = 0.0) -> None:
        super().__init__()
        require_count("batch_size", batch_size, at_least=1)
        require_number("max_wait", max_wait, 0.0, math.inf)
        self.batch_size, self.max_wait = batch_size, max_wait

    def bind(self, pool: BlockAllocator, limits: Limits, *args: Any, **options: Any) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            limit = getattr(limits, name)
            if self.batch_size > limit:
                raise ValueError(f"batch_size ({self.batch_size}) is above {name} ({limit}).")
        super().bind(pool, limits, *args, **options)

    def schedule(self) -> list[Scheduled]:
        """The next step of the batch that is under way, or the first of the next one."""
        self.preempted, self.wake_at = [], None
        if not self.running and self._is_due():
            self._collect()
        return self._take(self._unread() or self.running)

    def _is_due(self) -> bool:
        if not self.waiting:
            return False
        if len(self.waiting) < self.batch_size:
            due = self.waiting[0].arrival + self.max_wait
            self.wake_at = due if self.clock() < due else None
        return self.wake_at is None

    def _collect(self) -> None:
        """Move requests into the batch while all of them would fit to their very end."""
        free = self.pool.num_blocks
        while self.waiting and len(self.running) < self.batch_size:
            free -= self.pool.blocks_for(self.final_tokens(self.waiting[0]))
            if free < 0:
                break
            self._enter(self.waiting.popleft())

    def _unread(self) -> list[Request]:
        """Those whose prompt is not computed yet."""
        return [r for r in self.running if r.num_computed_tokens < r.num_prompt_tokens]

    def _take(self, requests: list[Request]) -> list[Scheduled]:
        batch: list[Scheduled] = []
        budget = self.limits.max_num_batched_tokens
        for request in requests:
            if budget == 0:
                break
            if not request.block_table:
                self.tables.reuse_prefix(request)
                self.pool.note_lookup(len(request.token_ids), request.num_hit_tokens)
            count = min(request.num_uncomputed_tokens, budget)
            self._grow(request, request.num_computed_tokens + count)
            batch.append(self.tables.plan(request, count))
            budget -= count
        return batch
