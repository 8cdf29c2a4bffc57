"""What the engine asks of whoever hands out blocks; five methods to write, the rest follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from llmserve_lab.kv_cache.prefix import Prefix


class OutOfBlocksError(RuntimeError):
    """Fewer blocks are free than were asked for; nothing was allocated."""


class BlockAllocator(ABC):
    """`num_blocks` blocks of `block_size` tokens, numbered from 0 and counted by reference.

    Subclass it to write a pool of your own: `LLM(..., block_pool=MyPool(num_blocks, block_size))`.
    Without more it shares blocks between continuations of a prompt, but finds no cached prefixes.

    prefix_cache_queries, prefix_cache_hits: tokens that were looked up, and found.
    """

    def __init__(
        self, num_blocks: int, block_size: int, enable_prefix_caching: bool = False
    ) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(
                f"A pool needs at least one block of one token, not {num_blocks} of {block_size}."
            )
        self.num_blocks, self.block_size = num_blocks, block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.prefix_cache_queries = self.prefix_cache_hits = 0

    @property
    @abstractmethod
    def num_free(self) -> int:
        """Blocks without a reference."""

    @abstractmethod
    def num_refs(self, block: int) -> int:
        """References to a block; 0 is free."""

    @abstractmethod
    def allocate(self, count: int, after: int | None = None) -> list[int]:
        """Take `count` free blocks, or none: each has one reference then. after: the sequence's
        last block, if it has one; the block next to it is the best choice.

        Raises:
            OutOfBlocksError: fewer than `count` are free.
        """

    @abstractmethod
    def share(self, blocks: Iterable[int]) -> None:
        """Take one more reference to each block; a free one is not free any more."""

    @abstractmethod
    def release(self, blocks: Sequence[int]) -> None:
        """Give up one reference to each block; without any it is free.

        Raises:
            ValueError: a block is free already.
        """

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_free

    @property
    def hit_rate(self) -> float:
        """Share of the tokens looked up that prefix caching found computed; 0 before any."""
        return self.prefix_cache_hits / max(1, self.prefix_cache_queries)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens need."""
        return -(-num_tokens // self.block_size)

    def refs(self) -> tuple[int, ...]:
        """The reference count of every block."""
        return tuple(self.num_refs(block) for block in range(self.num_blocks))

    def cached(self) -> tuple[int, ...]:
        """Free blocks whose content can still be found."""
        return ()

    def fork(self, block_table: Sequence[int]) -> list[int]:
        """A second block table of the same content: every block is shared, none is copied. Who
        writes first copies (`make_writable`)."""
        self.share(block_table)
        return list(block_table)

    def num_shared(self, block_table: Sequence[int], start: int) -> int:
        """How many of the blocks that hold token positions from `start` on have other owners
        too: so many free blocks `make_writable` will need."""
        return sum(self.num_refs(b) > 1 for b in block_table[start // self.block_size :])

    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        """Before token positions from `start` on are written: replace, within `block_table`, each
        of their blocks that has other owners by one of its own (copy-on-write), or none.

        Returns the (source, destination) copies to make, in order, with `copy_blocks`.

        Raises:
            OutOfBlocksError: too few blocks are free.
        """
        first = start // self.block_size
        written = range(first, len(block_table))
        shared = [i for i in written if self.num_refs(block_table[i]) > 1]
        fresh = self.allocate(len(shared), after=block_table[first - 1] if first else None)
        copies = [(block_table[i], block) for i, block in zip(shared, fresh, strict=True)]
        for index, block in zip(shared, fresh, strict=True):
            block_table[index] = block
        self.release([source for source, _ in copies])
        return copies

    def match(self, token_ids: Sequence[int], salt: str = "") -> tuple[list[int], list[Prefix]]:
        """The longest run of cached blocks that `token_ids` starts with, and their prefixes.

        At least one token is left over, since a request with nothing to compute has no logits.
        Takes no reference: call `share` before anything else is allocated.
        """
        return [], []

    def extend(self, parent: Prefix | None, tokens: Sequence[int], salt: str = "") -> Prefix:
        """The identity of a block with `tokens` after `parent`."""
        return Prefix.after(parent, tokens, salt)

    def publish(self, block: int, prefix: Prefix) -> None:  # noqa: B027 (nothing to do here)
        """Make a full, computed block findable."""

    def note_lookup(self, num_tokens: int, num_hits: int) -> None:
        """Count what a request looked up, once it is admitted: a request that waits looks again
        in every step."""
        self.prefix_cache_queries += num_tokens
        self.prefix_cache_hits += num_hits

    def check_integrity(self) -> None:
        """Assert what must hold between steps."""
        refs = self.refs()
        assert min(refs) >= 0, "a block has fewer than 0 references"
        assert refs.count(0) == self.num_free, f"{self.num_free} free, but {refs.count(0)} unheld"
