"""Physical KV blocks: who owns them, which are free, which can be reused (PagedAttention, Kwon et
al. 2023, section 4.3; prefix reuse as in section 4.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmserve_lab.kv_cache.block_allocator import BlockAllocator, OutOfBlocksError
from llmserve_lab.kv_cache.free_blocks import FreeBlocks
from llmserve_lab.kv_cache.prefix import Chain, Hash, Prefix, blake2b


class BlockPool(BlockAllocator):
    """`num_blocks` blocks of `block_size` tokens, handed out whole and counted by reference.

    A block whose last reference goes is free at once. With `enable_prefix_caching` its content
    stays findable until the block is handed out again, least recently used first. A sequence's
    blocks lie adjacent where possible. Every operation is O(1) per block.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        enable_prefix_caching: bool = False,
        hash: Hash = blake2b,
    ) -> None:
        super().__init__(num_blocks, block_size, enable_prefix_caching)
        self._hash = hash
        self._refs = [0] * num_blocks
        self._free = FreeBlocks(num_blocks)
        self._prefix_of: dict[int, Prefix] = {}
        self._block_with: dict[bytes, int] = {}
        self._chain = Chain(self.extend)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def num_refs(self, block: int) -> int:
        return self._refs[block]

    def refs(self) -> tuple[int, ...]:
        return tuple(self._refs)

    def cached(self) -> tuple[int, ...]:
        return self._free.cached()

    def allocate(self, count: int, after: int | None = None) -> list[int]:
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

    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        """As for every pool; content that will be overwritten is not found any more."""
        copies = super().make_writable(block_table, start)
        for block in block_table[start // self.block_size :]:
            self._forget(block)
        return copies

    def match(self, token_ids: Sequence[int], salt: str = "") -> tuple[list[int], list[Prefix]]:
        blocks: list[int] = []
        prefixes: list[Prefix] = []
        if not self.enable_prefix_caching:
            return blocks, prefixes
        for index, end in enumerate(range(self.block_size, len(token_ids), self.block_size)):
            prefix = self._chain.at(index, token_ids[end - self.block_size : end], salt)
            block = self._block_with.get(prefix.digest)
            if block is None or not self._prefix_of[block].same_as(prefix):
                break
            blocks.append(block)
            prefixes.append(self._chain.settle(index, self._prefix_of[block]))
        return blocks, prefixes

    def extend(self, parent: Prefix | None, tokens: Sequence[int], salt: str = "") -> Prefix:
        return Prefix.after(parent, tokens, salt, self._hash)

    def publish(self, block: int, prefix: Prefix) -> None:
        """Make a full, computed block findable. Of two blocks with the same content the first
        stays the findable one."""
        if self.enable_prefix_caching and prefix.digest not in self._block_with:
            self._block_with[prefix.digest] = block
            self._prefix_of[block] = prefix

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
