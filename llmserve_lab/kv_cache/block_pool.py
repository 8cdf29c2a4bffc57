"""Physical KV blocks: who owns them, which are free, which can be reused (PagedAttention, Kwon et
al. 2023, section 4.3; prefix reuse as in section 4.4)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from llmserve_lab.kv_cache.prefix import Hash, Prefix, blake2b


class OutOfBlocksError(RuntimeError):
    """Fewer blocks are free than were asked for; nothing was allocated."""


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens, handed out whole and counted by reference.

    A block whose last reference goes is free at once. With `enable_prefix_caching` its content
    stays findable until the block is handed out again, least recently used first. Every operation
    is O(1) per block.
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
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._prefix_of: dict[int, Prefix] = {}
        self._block_with: dict[bytes, int] = {}

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
        return tuple(block for block in self._free if block in self._prefix_of)

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, or none.

        Raises:
            OutOfBlocksError: fewer than `count` are free.
        """
        if count > len(self._free):
            raise OutOfBlocksError(f"{count} blocks wanted, {len(self._free)} free.")
        return [self._take_oldest() for _ in range(count)]

    def release(self, blocks: Sequence[int]) -> None:
        """Give up one reference to each block. The last block of a sequence is reused first, since
        a prefix is worth more than what follows it."""
        for block in reversed(blocks):
            if self._refs[block] == 0:
                raise ValueError(f"Block {block} is free already; it was released twice.")
            self._refs[block] -= 1
            if self._refs[block] == 0:
                self._free[block] = None
                if block not in self._prefix_of:
                    self._free.move_to_end(block, last=False)

    def share(self, blocks: Iterable[int]) -> None:
        """Take one more reference to each block, free ones with known content included."""
        for block in blocks:
            self._refs[block] += 1
            self._free.pop(block, None)

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

    def check_integrity(self) -> None:
        """Assert what must hold between steps; cheap enough for tests to call after each."""
        for block, refs in enumerate(self._refs):
            assert refs >= 0, f"block {block} has {refs} references"
            assert (refs == 0) == (block in self._free), f"block {block}: {refs} references"
        assert len(self._block_with) == len(self._prefix_of)
        for digest, block in self._block_with.items():
            assert self._prefix_of[block].digest == digest, f"block {block} is found by a stale key"

    def _take_oldest(self) -> int:
        block, _ = self._free.popitem(last=False)
        prefix = self._prefix_of.pop(block, None)
        if prefix is not None:
            del self._block_with[prefix.digest]
        self._refs[block] = 1
        return block
