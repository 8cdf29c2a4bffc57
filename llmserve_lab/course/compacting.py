"""Reservations that are moved together whenever holes are all that keeps a request out."""

from __future__ import annotations

from llmserve_lab.engine.request import Request
from llmserve_lab.engine.reserving_scheduler import ReservingScheduler


class CompactingScheduler(ReservingScheduler):
    """Knows each request's longest length, and has no external fragmentation: it copies.

    num_compactions: how often. moved_tokens: tokens whose keys and values were copied for it.
    """

    def __init__(self) -> None:
        super().__init__(to_model_len=False)
        self.num_compactions = self.moved_tokens = 0

    def _place(self, request: Request) -> bool:
        if super()._place(request):
            return True
        if self.refused is None or not self.refused.fragmented:
            return False
        self._compact()
        self.refused = None
        return super()._place(request)

    def _compact(self) -> None:
        """Copy block by block, from the front: what is overwritten has been copied already."""
        moves = self.memory.compact()
        running = {request.request_id: request for request in self.running}
        size = self.pool.block_size
        for before, after in moves:
            blocks = range(self.pool.blocks_for(before.used))
            first, target = before.start // size, after.start // size
            if self.tables.store is not None:
                self.tables.store.copy_blocks([(first + i, target + i) for i in blocks])
            request = running[before.owner or ""]
            self.pool.release(request.block_table)
            self._hold(request, after)
        self.num_compactions += 1
        self.moved_tokens += sum(before.used for before, _ in moves)
