"""Physical KV blocks: who owns them, which are free, which can be reused (PagedAttention, Kwon et
al. 2023, section 4.3; prefix reuse as in section 4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmserve_lab.kv_cache.free_blocks import FreeBlocks
from llmserve_lab.kv_cache.prefix import Hash, Prefix, blake2b


class OutOfBlocksError(RuntimeError):
    """Fewer blocks are free than were asked for; nothing was allocated."""


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens, handed out whole and counted by reference.

    A block whose last reference goes is free at once. With `enable_prefix_caching` its content
    stays findable until the block is handed out again, least recently used first. A sequence's
    blocks lie adjacent where possible. Every operation is O(1) per block.

    prefix_cache_queries, prefix_cache_hits: tokens that were looked up, and found.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        enable_prefix_caching: bool = False,
        hash: Hash = blake2b,
    ) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(
                f"A pool needs at least one block of one token, not {num_blocks} of {block_size}."
            )
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._hash = hash
        self._refs = [0] * num_blocks
        self._free = FreeBlocks(num_blocks)
        self._prefix_of: dict[int, Prefix] = {}
        self._block_with: dict[bytes, int] = {}
        self.prefix_cache_queries = self.prefix_cache_hits = 0

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens need."""
        return -(-num_tokens // self.block_size)

    def refs(self) -> tuple[int, ...]:
        """The reference count of every block."""
        return tuple(self._refs)

    def cached(self) -> tuple[int, ...]:
        """Free blocks whose content can still be found."""
        return self._free.cached()

    @property
    def hit_rate(self) -> float:
        """Share of the tokens looked up that prefix caching found computed; 0 before any."""
        return self.prefix_cache_hits / max(1, self.prefix_cache_queries)

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        """Take `count` free blocks, or none. after: the sequence's last block, if it has one.

        Raises:
            OutOfBlocksError: fewer than `count` are free.
        """
        if count > len(self._free):
            raise OutOfBlocksError(f"{count} blocks wanted, {len(self._free)} free.")
        blocks: list[int] = []
        for _ in range(count):
            after = self._take(after)
            blocks.append(after)
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        """Give up one reference to each block. The last block of a sequence is reused first, since
        a prefix is worth more than what follows it."""
        for block in reversed(blocks):
            if self._refs[block] == 0:
                raise ValueError(f"Block {block} is free already; it was released twice.")
            self._refs[block] -= 1
            if self._refs[block] == 0:
                self._free.add(block, cached=block in self._prefix_of)

    def share(self, blocks: Iterable[int]) -> None:
        """Take one more reference to each block, free ones with known content included."""
        for block in blocks:
            self._refs[block] += 1
            self._free.remove(block)

    def fork(self, block_table: Sequence[int]) -> list[int]:
        """A second block table of the same content: every block is shared, none is copied. Who
        writes first copies (`make_writable`)."""
        self.share(block_table)
        return list(block_table)

    def num_shared(self, block_table: Sequence[int], start: int) -> int:
        """How many of the blocks that hold token positions from `start` on have other owners
        too: so many free blocks `make_writable` will need."""
        return sum(self._refs[block] > 1 for block in block_table[start // self.block_size :])

    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        """Before token positions from `start` on are written: replace, within `block_table`, each
        of their blocks that has other owners by one of its own (copy-on-write), or none. Content
        that will be overwritten is not found any more.

        Returns the (source, destination) copies to make, in order, with `copy_blocks`.

        Raises:
            OutOfBlocksError: too few blocks are free.
        """
        first = start // self.block_size
        written = range(first, len(block_table))
        shared = [i for i in written if self._refs[block_table[i]] > 1]
        fresh = self.allocate(len(shared), after=block_table[first - 1] if first else None)
        copies = [(block_table[i], block) for i, block in zip(shared, fresh, strict=True)]
        for index, block in zip(shared, fresh, strict=True):
            block_table[index] = block
        self.release([source for source, _ in copies])
        for index in written:
            self._forget(block_table[index])
        return copies

    def match(self, token_ids: Sequence[int], salt: str = "") -> tuple[list[int], list[Prefix]]:
        """The longest run of cached blocks that `token_ids` starts with, and their prefixes.

        At least one token is left over, since a request with nothing to compute has no logits.
        Takes no reference: call `share` before anything else is allocated.
        """
        blocks: list[int] = []
        prefixes: list[Prefix] = []
        if not self.enable_prefix_caching:
            return blocks, prefixes
        for end in range(self.block_size, len(token_ids), self.block_size):
            tokens = token_ids[end - self.block_size : end]
            prefix = self.extend(prefixes[-1] if prefixes else None, tokens, salt)
            block = self._block_with.get(prefix.digest)
            if block is None or not self._prefix_of[block].same_as(prefix):
                break
            blocks.append(block)
            prefixes.append(self._prefix_of[block])
        return blocks, prefixes

    def extend(self, parent: Prefix | None, tokens: Sequence[int], salt: str = "") -> Prefix:
        """The identity of a block with `tokens` after `parent`."""
        return Prefix.after(parent, tokens, salt, self._hash)

    def publish(self, block: int, prefix: Prefix) -> None:
        """Make a full, computed block findable. Of two blocks with the same content the first
        stays the findable one."""
        if self.enable_prefix_caching and prefix.digest not in self._block_with:
            self._block_with[prefix.digest] = block
            self._prefix_of[block] = prefix

    def note_lookup(self, num_tokens: int, num_hits: int) -> None:
        """Count what a request looked up, once it is admitted: a request that waits looks again
        in every step."""
        self.prefix_cache_queries += num_tokens
        self.prefix_cache_hits += num_hits

    def check_integrity(self) -> None:
        """Assert what must hold between steps; cheap enough for tests to call after each."""
        for block, refs in enumerate(self._refs):
            assert refs >= 0, f"block {block} has {refs} references"
            assert (refs == 0) == (block in self._free), f"block {block}: {refs} references"
        assert len(self._free) == self._refs.count(0), "free blocks are not counted right"
        known_and_free = {block for block in self._prefix_of if self._refs[block] == 0}
        assert known_and_free == set(self._free.cached()), "a cached block is taken for a blank one"
        assert len(self._block_with) == len(self._prefix_of)
        for digest, block in self._block_with.items():
            assert self._prefix_of[block].digest == digest, f"block {block} is found by a stale key"

    def _take(self, after: int | None) -> int:
        block = self._free.take(after)
        self._forget(block)
        self._refs[block] = 1
        return block

    def _forget(self, block: int) -> None:
        prefix = self._prefix_of.pop(block, None)
        if prefix is not None:
            del self._block_with[prefix.digest]
