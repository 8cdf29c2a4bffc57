"""Which blocks a request holds: allocated as it grows, shared where content is the same."""

from __future__ import annotations

from collections.abc import Sequence

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.loans import Loans, Offer
from llmserve_lab.engine.preemption import BlockStore
from llmserve_lab.engine.request import Request
from llmserve_lab.kv_cache import BlockAllocator, BlockPool, Prefix


class BlockTables:
    """Gives requests their blocks and takes them back. store: where blocks can be copied; without
    one they are only counted.

    Blocks are shared in the step that computes them, see `Loans`, unless the pool has a `match` of
    its own: that one alone says what is found, and it hears of a block after the step.
    """

    def __init__(self, pool: BlockAllocator, store: BlockStore | None = None) -> None:
        self.pool, self.store = pool, store
        self.loans = Loans()
        self._lends = pool.enable_prefix_caching and type(pool).match is BlockPool.match

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
        """Give a request the blocks that others computed for the same first tokens, or compute in
        this step."""
        known = () if request.is_being_scored else request.token_ids
        blocks, prefixes = self.pool.match(known, request.cache_salt)
        offers = self._offers(known, request.cache_salt, prefixes)
        blocks += [offer.block for offer in offers]
        self.pool.share(blocks)
        self.loans.take(request, offers)
        request.block_table = blocks
        request.prefixes = prefixes + [offer.prefix for offer in offers]
        request.num_computed_tokens = request.num_hit_tokens = len(blocks) * self.pool.block_size

    def _offers(self, tokens: Sequence[int], salt: str, prefixes: list[Prefix]) -> list[Offer]:
        """Blocks of this step that go on where `prefixes` end. As in `BlockAllocator.match`, at
        least one token is left over."""
        offers: list[Offer] = []
        if not self.loans.has_offers:
            return offers
        size, parent = self.pool.block_size, prefixes[-1] if prefixes else None
        for end in range((len(prefixes) + 1) * size, len(tokens), size):
            offer = self.loans.find(self.pool.extend(parent, tokens[end - size : end], salt))
            if offer is None:
                break
            offers.append(offer)
            parent = offer.prefix
        return offers

    def plan(self, request: Request, count: int) -> Scheduled:
        """Run the next `count` tokens of a request, which has blocks for them. From now on others
        can share the blocks of its prompt that are full then."""
        start = request.num_computed_tokens
        if self._lends and start < request.num_prompt_tokens:
            self._offer(request, min(start + count, request.num_prompt_tokens))
        return Scheduled(request, start, count)

    def _offer(self, request: Request, num_tokens: int) -> None:
        self.loans.ahead[request] = ahead = self._prefixes(request, num_tokens)
        for index, prefix in enumerate(ahead, start=len(request.prefixes)):
            end = (index + 1) * self.pool.block_size
            self.loans.offer(Offer(request, index, end, request.block_table[index], prefix))

    def _prefixes(self, request: Request, num_tokens: int) -> list[Prefix]:
        """Those of the full blocks among the first `num_tokens` tokens that follow
        `request.prefixes`."""
        size, known = self.pool.block_size, len(request.prefixes)
        if num_tokens // size <= known:
            return []
        chain = request.prefixes + self.loans.ahead.pop(request, [])
        for index in range(len(chain), num_tokens // size):
            tokens = request.token_ids[index * size : (index + 1) * size]
            parent = chain[-1] if chain else None
            chain.append(self.pool.extend(parent, tokens, request.cache_salt))
        return chain[known : num_tokens // size]

    def release(self, request: Request) -> None:
        """Take all blocks back: nothing of the request is computed any more."""
        self.pool.release(request.block_table)
        self.loans.forget(request)
        request.block_table, request.prefixes, request.shares_blocks = [], [], False

    def publish(self, request: Request) -> None:
        """Let others find the blocks that are full and computed, with prefix caching."""
        if not self.pool.enable_prefix_caching:
            return
        for prefix in self._prefixes(request, request.num_computed_tokens):
            self.pool.publish(request.block_table[len(request.prefixes)], prefix)
            request.prefixes.append(prefix)

    def start_over(self, requests: list[Request]) -> None:
        """Free every block and forget what it held, whoever owned it."""
        for request in requests:
            request.block_table, request.prefixes, request.shares_blocks = [], [], False
            request.num_computed_tokens = 0
        self.loans = Loans()
        for block, references in enumerate(self.pool.refs()):
            self.pool.release([block] * references)
        self.pool.release(self.pool.allocate(self.pool.num_blocks))
