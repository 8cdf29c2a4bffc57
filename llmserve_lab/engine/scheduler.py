"""Which tokens run in the next step (iteration-level scheduling: Orca, Yu et al. 2022, 3.1).

Pure Python: it never touches a tensor, so the same scheduler drives the real engine and a simulated
one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from llmserve_lab.engine.batch import Limits, Scheduled
from llmserve_lab.engine.block_tables import BlockTables
from llmserve_lab.engine.checks import require_count
from llmserve_lab.engine.preemption import BlockStore, Recompute, require_preemption
from llmserve_lab.engine.request import Request, Status
from llmserve_lab.engine.request_queue import RequestQueue
from llmserve_lab.kv_cache import BlockAllocator

MAX_PREEMPTIONS = 3


class Scheduler:
    """First come, first served, with continuous batching, chunked prefill and preemption.

    Running requests come first, then waiting ones as long as tokens, sequences and blocks last.
    When a running request finds no block, the one that came last gives up its blocks and goes back
    to the head of the queue. `preemption` says what becomes of its keys and values.

    Progress is guaranteed: the oldest running request is never preempted for another, and one that
    gave way `max_preemptions` times starts again only with every block that it can ever need (0:
    every request starts that way, and none is ever preempted).

    With prefix caching, one of the prompts that come together computes what they have in common,
    and the others go on from there in the same step: who drops it from the step drops them too.

    Subclass it and override `schedule` to try a policy: `LLM(..., scheduler=MyScheduler())`. Take
    requests from `waiting`, `_grow` them to the tokens that they will have, `_enter` them.
    """

    pool: BlockAllocator
    limits: Limits
    clock: Callable[[], float]
    tables: BlockTables
    can_fork = True  # whether continuations of one prompt may share its blocks
    honours_priority = False  # whether Request.priority has a meaning here
    wake_at: float | None = None
    """Set with an empty step: when, on `clock`, there is something to run without a new request.
    The engine waits until then, or until a request or an abort arrives."""

    def __init__(
        self, preemption: Recompute | None = None, max_preemptions: int = MAX_PREEMPTIONS
    ) -> None:
        require_count("max_preemptions", max_preemptions, at_least=0)
        self.preemption = require_preemption(preemption)
        self.max_preemptions = max_preemptions
        self.waiting = RequestQueue()
        self.running: list[Request] = []
        self.preempted: list[Request] = []  # in the latest step

    def bind(
        self,
        pool: BlockAllocator,
        limits: Limits,
        clock: Callable[[], float] = time.perf_counter,
        store: BlockStore | None = None,
    ) -> None:
        """Called once by the engine, before any request. clock: the engine's, in seconds. store:
        where blocks can be copied; without one they are only counted."""
        if hasattr(self, "pool"):
            raise ValueError("This scheduler serves another engine: make a new one for this one.")
        self.preemption.bind(pool, store)
        self.pool, self.limits, self.clock = pool, limits, clock
        self.tables = BlockTables(pool, store)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """Forget a finished or aborted request, wherever it is; its blocks are free at once.
        Continuations that still wait for its prompt go on with the first of them."""
        if request in self.running:
            self.running.remove(request)
        if request in self.waiting:
            self.waiting.remove(request)
        self._release(request)
        self.preemption.forget(request)
        request.status = Status.FINISHED
        if heirs := request.part():
            heirs[0].forks = heirs[1:]
            self.add(heirs[0])

    def fork(self, request: Request) -> list[Request]:
        """The prompt of `request` is computed: let the continuations that wait for it run on from
        its blocks. Returns those that do; the others are queued, since they find no place."""
        return [fork for fork in request.part() if self._join(fork, request)]

    def start_over(self, requests: Iterable[Request]) -> None:
        """Free every block and queue all of `requests` again: nothing is known any more of who
        owned what."""
        requests = list(requests)
        parts_later = {fork for request in requests for fork in request.forks}
        self.running.clear()
        self.waiting.clear()
        self.tables.start_over(requests)
        for request in requests:
            self.preemption.forget(request)
            request.status = Status.WAITING
            if request not in parts_later:
                self.add(request)

    def schedule(self) -> list[Scheduled]:
        """The next step's tokens, within the limits; their blocks are allocated."""
        self.preempted = []
        batch = self._schedule_running()
        if not self.preempted:
            self._admit(batch)
        return batch

    def commit(self, batch: list[Scheduled]) -> None:
        """Note that the batch's tokens are computed: full blocks can be shared from now on."""
        for request, start, num_tokens in batch:
            request.num_computed_tokens = start + num_tokens
            self.tables.publish(request)
        self.tables.loans.settle()

    def call_off(self) -> None:
        """Called by the engine after each step, whatever came of it: whoever goes on from tokens
        that the step was to compute and did not is queued again."""
        for request in reversed(self.tables.loans.call_off()):
            self._send_back(request)

    def accept(self, request: Request, num_tokens: int) -> None:
        """Drafts are tokens of the request now, and the next `num_tokens` of it are computed."""
        request.num_computed_tokens += num_tokens
        self.tables.publish(request)

    def _schedule_running(self) -> list[Scheduled]:
        batch: list[Scheduled] = []
        budget, index = self.limits.max_num_batched_tokens, 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            count = min(request.num_uncomputed_tokens, budget)
            if self._make_room(request, count):
                batch.append(self.tables.plan(request, count))
                budget -= count
                index += 1
        return batch

    def _make_room(self, request: Request, count: int) -> bool:
        """Allocate blocks for `count` more tokens; preempt others while there are too few. False
        if `request` itself had to go."""
        while not self.tables.grow(request, request.num_computed_tokens + count):
            victim = self._victim(request)
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _grow(self, request: Request, num_tokens: int) -> bool:
        """Give a request blocks for its first `num_tokens` tokens, or none if too few are free."""
        return self.tables.grow(request, num_tokens)

    def _join(self, fork: Request, request: Request) -> bool:
        """Let `fork` run on from the tokens that `request` has computed, or queue it."""
        self.tables.share(request, fork)
        full = len(self.running) >= self.limits.max_num_seqs
        if full or (self._must_finish(fork) and not self._grow(fork, self.final_tokens(fork))):
            self._release(fork)
            fork.num_computed_tokens = 0
            self.add(fork)
            return False
        fork.first_scheduled = request.first_scheduled
        fork.num_reached_tokens = fork.num_computed_tokens
        self._enter(fork)
        return True

    def _victim(self, request: Request) -> Request:
        """The latest running request that was not preempted too often; `request` at the latest."""
        others = (r for r in reversed(self.running) if r is request or not self._must_finish(r))
        return next(others, request)

    def _must_finish(self, request: Request) -> bool:
        return request.num_preemptions >= self.max_preemptions

    def _preempt(self, request: Request) -> None:
        if not self.tables.loans.borrows(request):
            self.preemption.save(request)
        self._send_back(request)
        request.num_preemptions += 1
        self.preempted.append(request)

    def _send_back(self, request: Request) -> None:
        """Take a request's blocks, and queue it before all others."""
        if request in self.running:
            self.running.remove(request)
        self._release(request)
        request.num_computed_tokens = 0
        request.status = Status.WAITING
        self.waiting.appendleft(request)

    def _admit(self, batch: list[Scheduled]) -> None:
        budget = self.limits.max_num_batched_tokens - sum(item.num_tokens for item in batch)
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting[0]
            if not self._place(request):
                break
            self.waiting.popleft()
            count = min(request.num_uncomputed_tokens, budget)
            self._grow(request, request.num_computed_tokens + count)
            self._enter(request)
            batch.append(self.tables.plan(request, count))
            budget -= count

    def _enter(self, request: Request) -> None:
        """Let an admitted request run."""
        request.status = Status.RUNNING
        self.running.append(request)

    def _place(self, request: Request) -> bool:
        """Give a waiting request the blocks of what is computed already, if all that it has to
        compute would fit as well; else nothing."""
        saved = self.preemption.saved_tokens(request)
        if not saved:
            self.tables.reuse_prefix(request)
        if not self._fits(request):
            self._release(request)
            request.num_computed_tokens = 0
            return False
        if self._must_finish(request):
            self._grow(request, self.final_tokens(request))
        if saved:
            self._grow(request, saved)
            self.preemption.restore(request)
        else:
            self.pool.note_lookup(len(request.token_ids), request.num_hit_tokens)
        return True

    def _fits(self, request: Request) -> bool:
        """Whether blocks are free for all known tokens, so that no half-read prompt is preempted
        by the next one; for all that can ever come where the request must finish."""
        known = len(request.token_ids)
        wanted = self.final_tokens(request) if self._must_finish(request) else known
        return self.pool.blocks_for(wanted) - len(request.block_table) <= self.pool.num_free

    def final_tokens(self, request: Request) -> int:
        """The most tokens that a request can come to."""
        longest = request.num_prompt_tokens + request.params.max_tokens
        capacity = self.pool.num_blocks * self.pool.block_size
        return min(longest, self.limits.max_model_len, capacity)

    def _release(self, request: Request) -> None:
        self.tables.release(request)
