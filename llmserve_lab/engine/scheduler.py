"""Which tokens run in the next step (iteration-level scheduling: Orca, Yu et al. 2022, 3.1).

Pure Python: it never touches a tensor, so the same scheduler drives the real engine and a simulated
one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from llmserve_lab.engine.request import Request, Status
from llmserve_lab.kv_cache import BlockPool


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may hold: sequences, and tokens over all of them."""

    max_num_seqs: int
    max_num_batched_tokens: int


@dataclass(frozen=True, slots=True)
class Scheduled:
    """`num_tokens` tokens of `request`, from position `start` on, run in this step."""

    request: Request
    start: int
    num_tokens: int

    @property
    def samples(self) -> bool:
        """Whether the step ends with a new token for this request."""
        return self.start + self.num_tokens == len(self.request.token_ids)


class Scheduler:
    """First come, first served, with continuous batching, chunked prefill and preemption.

    Running requests come first, then waiting ones as long as tokens, sequences and blocks last.
    When a running request finds no block, the one that came last gives up its blocks and is
    computed again later (preemption by recompute, PagedAttention, section 4.5).

    Subclass it and override `schedule` to try a policy: `LLM(..., scheduler=MyScheduler())`.
    """

    pool: BlockPool
    limits: Limits

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.preempted: list[Request] = []  # in the latest step

    def bind(self, pool: BlockPool, limits: Limits) -> None:
        """Called once by the engine, before any request."""
        self.pool, self.limits = pool, limits

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """Forget a finished or aborted request, wherever it is; its blocks are free at once."""
        if request in self.running:
            self.running.remove(request)
        if request in self.waiting:
            self.waiting.remove(request)
        self._release(request)
        request.status = Status.FINISHED

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    def schedule(self) -> list[Scheduled]:
        """The next step's tokens, within the limits; their blocks are allocated."""
        self.preempted = []
        batch = self._schedule_running()
        if not self.preempted:
            self._admit(batch)
        return batch

    def commit(self, batch: list[Scheduled]) -> None:
        """Note that the batch's tokens are computed: full blocks can be shared from now on."""
        for item in batch:
            item.request.num_computed_tokens = item.start + item.num_tokens
            self._publish_full_blocks(item.request)

    def _schedule_running(self) -> list[Scheduled]:
        batch: list[Scheduled] = []
        budget = self.limits.max_num_batched_tokens
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            count = min(request.num_uncomputed_tokens, budget)
            if not self._make_room(request, count):
                break  # it was the last one, and gave up its own blocks
            batch.append(Scheduled(request, request.num_computed_tokens, count))
            budget -= count
            index += 1
        return batch

    def _make_room(self, request: Request, count: int) -> bool:
        """Allocate blocks for `count` more tokens; preempt the latest while there are too few."""
        while not self._grow(request, count):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _grow(self, request: Request, count: int) -> bool:
        wanted = self.pool.blocks_for(request.num_computed_tokens + count)
        missing = wanted - len(request.block_table)
        if missing > self.pool.num_free:
            return False
        request.block_table += self.pool.allocate(max(0, missing))
        return True

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._release(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = Status.WAITING
        self.waiting.appendleft(request)
        self.preempted.append(request)

    def _admit(self, batch: list[Scheduled]) -> None:
        budget = self.limits.max_num_batched_tokens - sum(item.num_tokens for item in batch)
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting[0]
            self._reuse_prefix(request)
            count = min(request.num_uncomputed_tokens, budget)
            if not self._grow(request, count):
                self._release(request)
                request.num_computed_tokens = 0
                break
            self.waiting.popleft()
            request.status = Status.RUNNING
            request.num_hit_tokens = request.num_computed_tokens
            self.running.append(request)
            batch.append(Scheduled(request, request.num_computed_tokens, count))
            budget -= count

    def _reuse_prefix(self, request: Request) -> None:
        blocks, prefixes = self.pool.match(request.token_ids)
        self.pool.share(blocks)
        request.block_table, request.prefixes = blocks, prefixes
        request.num_computed_tokens = len(blocks) * self.pool.block_size

    def _release(self, request: Request) -> None:
        self.pool.release(request.block_table)
        request.block_table, request.prefixes = [], []

    def _publish_full_blocks(self, request: Request) -> None:
        if not self.pool.enable_prefix_caching:
            return
        size = self.pool.block_size
        for index in range(len(request.prefixes), request.num_computed_tokens // size):
            tokens = request.token_ids[index * size : (index + 1) * size]
            parent = request.prefixes[-1] if request.prefixes else None
            prefix = self.pool.extend(parent, tokens)
            self.pool.publish(request.block_table[index], prefix)
            request.prefixes.append(prefix)
