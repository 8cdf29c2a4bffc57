"""Which blocks a request holds: allocated as it grows, shared where content is the same."""

from __future__ import annotations

from llmserve_lab.engine.preemption import BlockStore
from llmserve_lab.engine.request import Request
from llmserve_lab.kv_cache import BlockAllocator


class BlockTables:
    """Gives requests their blocks and takes them back. store: where blocks can be copied; without
    one they are only counted."""

    def __init__(self, pool: BlockAllocator, store: BlockStore | None = None) -> None:
        self.pool, self.store = pool, store

    def grow(self, request: Request, num_tokens: int) -> bool:
        """Give a request blocks for its first `num_tokens` tokens, of its own where it will write,
        or none if too few are free."""
        table, pool = request.block_table, self.pool
        if num_tokens <= len(table) * pool.block_size and not request.shares_blocks:
            return True
        missing = max(0, pool.blocks_for(num_tokens) - len(table))
        shared = request.shares_blocks and pool.num_shared(table, request.num_computed_tokens)
        if missing + shared > pool.num_free:
            return False
        if request.shares_blocks:
            self._unshare(request)
        if missing:
            table += pool.allocate(missing, after=table[-1] if table else None)
        return True

    def shrink(self, request: Request, num_blocks: int) -> None:
        """Take back all blocks but the first `num_blocks`: nothing in them is needed."""
        self.pool.release(request.block_table[num_blocks:])
        del request.block_table[num_blocks:]

    def _unshare(self, request: Request) -> None:
        """Copy-on-write of the last block after a fork."""
        copies = self.pool.make_writable(request.block_table, request.num_computed_tokens)
        if self.store is not None and copies:
            self.store.copy_blocks(copies)
        request.shares_blocks = False

    def share(self, request: Request, fork: Request) -> None:
        """Let `fork` have all that `request` has computed."""
        fork.num_computed_tokens = request.num_computed_tokens
        num_blocks = self.pool.blocks_for(fork.num_computed_tokens)
        fork.block_table = self.pool.fork(request.block_table[:num_blocks])
        fork.prefixes = list(request.prefixes)
        fork.shares_blocks = request.shares_blocks = True

    def reuse_prefix(self, request: Request) -> None:
        """Give a request the blocks that others computed for the same first tokens."""
        known = () if request.is_being_scored else request.token_ids
        blocks, prefixes = self.pool.match(known, request.cache_salt)
        self.pool.share(blocks)
        request.block_table, request.prefixes = blocks, prefixes
        request.num_computed_tokens = request.num_hit_tokens = len(blocks) * self.pool.block_size

    def release(self, request: Request) -> None:
        """Take all blocks back: nothing of the request is computed any more."""
        self.pool.release(request.block_table)
        request.block_table, request.prefixes, request.shares_blocks = [], [], False

    def publish(self, request: Request) -> None:
        """Let others find the blocks that are full and computed."""
        size = self.pool.block_size
        for index in range(len(request.prefixes), request.num_computed_tokens // size):
            tokens = request.token_ids[index * size : (index + 1) * size]
            parent = request.prefixes[-1] if request.prefixes else None
            prefix = self.pool.extend(parent, tokens, request.cache_salt)
            self.pool.publish(request.block_table[index], prefix)
            request.prefixes.append(prefix)

    def start_over(self, requests: list[Request]) -> None:
        """Free every block and forget what it held, whoever owned it."""
        for request in requests:
            request.block_table, request.prefixes, request.shares_blocks = [], [], False
            request.num_computed_tokens = 0
        for block, references in enumerate(self.pool.refs()):
            self.pool.release([block] * references)
        self.pool.release(self.pool.allocate(self.pool.num_blocks))
