"""Room for drafts: what a step has left of its tokens and of the free blocks."""

from __future__ import annotations

from collections.abc import Sequence

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduler


class Grants:
    """Grants requests up to `num_draft_tokens` drafts, once the scheduler has chosen a step. Drafts
    take what is left over: nobody waits or is preempted for them, and their blocks are free again
    after the step."""

    def __init__(self, scheduler: Scheduler, num_draft_tokens: int) -> None:
        self.scheduler, self.num_draft_tokens = scheduler, num_draft_tokens
        self._before: dict[Request, int] = {}  # blocks that a request held without its drafts

    def give(self, batch: Sequence[Scheduled]) -> dict[Request, int]:
        """How many drafts each request may have, with the blocks for them; only those with some.
        What is left of the step's tokens is shared out evenly."""
        self._before = {}
        left = self.scheduler.limits.max_num_batched_tokens - sum(i.num_tokens for i in batch)
        open_ = [item.request for item in batch if item.samples and not item.request.forks]
        room: dict[Request, int] = {}
        for index, request in enumerate(open_):
            share = -(-left // (len(open_) - index))
            count = self._with_blocks(request, min(share, self._most(request)))
            if count > 0:
                room[request] = count
                left -= count
        return room

    def take_back(self) -> None:
        """Free the blocks that no computed token lies in and that were not there before."""
        pool, tables = self.scheduler.pool, self.scheduler.tables
        for request, before in self._before.items():
            tables.shrink(request, max(before, pool.blocks_for(request.num_computed_tokens)))
        self._before = {}

    def _most(self, request: Request) -> int:
        """Drafts beyond the request's last possible token but one are of no use: the target adds a
        token of its own."""
        left = self.scheduler.final_tokens(request) - len(request.token_ids) - 1
        return min(self.num_draft_tokens, left)

    def _with_blocks(self, request: Request, count: int) -> int:
        """Allocate blocks for `count` drafts, or for as many as there are blocks for."""
        before, known = len(request.block_table), len(request.token_ids)
        while count > 0 and not self.scheduler.tables.grow(request, known + count):
            count -= 1
        if count > 0:
            self._before[request] = before
        return count
