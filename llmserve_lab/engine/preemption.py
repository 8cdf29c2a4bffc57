"""What becomes of the keys and values of a request that gives up its blocks (PagedAttention, Kwon
et al. 2023, section 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llmserve_lab.engine.checks import require_count
from llmserve_lab.engine.request import Request
from llmserve_lab.kv_cache import BlockAllocator


class BlockStore(Protocol):
    """Copies whole blocks within the KV cache, out of it and back: a `PagedKVCache`, or a simulator
    that only counts their bytes."""

    def read_blocks(self, blocks: Sequence[int]) -> Any: ...

    def write_blocks(self, blocks: Sequence[int], content: Any) -> None: ...

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None: ...


class Recompute:
    """Keep nothing: the tokens are computed again, most of them in one prefill."""

    def bind(self, pool: BlockAllocator, store: BlockStore | None) -> None:
        """Called once, before any request."""

    def save(self, request: Request) -> None:
        """Called while the request still holds its blocks."""

    def saved_tokens(self, request: Request) -> int:
        """How many tokens `restore` would bring back."""
        return 0

    def restore(self, request: Request) -> None:
        """Called once the request holds enough blocks for its `saved_tokens` again."""

    def forget(self, request: Request) -> None:
        """The request has ended."""


def require_preemption(preemption: Any) -> Recompute:
    """Raise unless it is a policy object, or None for the default."""
    if preemption is None:
        return Recompute()
    if not isinstance(preemption, Recompute):
        raise TypeError(
            f"preemption must be Recompute() or SwapToHost(num_blocks), not {preemption!r:.60}."
        )
    return preemption


@dataclass(frozen=True, slots=True)
class Saved:
    """A request's computed tokens, in host memory."""

    num_tokens: int
    num_blocks: int
    content: Any


class SwapToHost(Recompute):
    """Keep up to `num_blocks` blocks in host memory and copy them back. A request that does not
    fit there any more is computed again.

    num_swapped_out, num_swapped_in: blocks copied so far.
    """

    pool: BlockAllocator
    store: BlockStore

    def __init__(self, num_blocks: int) -> None:
        require_count("num_blocks", num_blocks, at_least=1)
        self.num_blocks = num_blocks
        self.num_swapped_out = self.num_swapped_in = 0
        self._saved: dict[str, Saved] = {}

    @property
    def num_used(self) -> int:
        """Blocks in host memory."""
        return sum(saved.num_blocks for saved in self._saved.values())

    def bind(self, pool: BlockAllocator, store: BlockStore | None) -> None:
        if store is None:
            raise ValueError(
                "SwapToHost copies blocks: bind the scheduler with the KV cache that holds them, "
                "or preempt with Recompute()."
            )
        if hasattr(self, "pool"):
            raise ValueError("This SwapToHost serves another scheduler: make a new one.")
        self.pool, self.store = pool, store

    def save(self, request: Request) -> None:
        count = self.pool.blocks_for(request.num_computed_tokens)
        if count == 0 or self.num_used + count > self.num_blocks:
            return
        content = self.store.read_blocks(request.block_table[:count])
        self._saved[request.request_id] = Saved(request.num_computed_tokens, count, content)
        self.num_swapped_out += count

    def saved_tokens(self, request: Request) -> int:
        saved = self._saved.get(request.request_id)
        return 0 if saved is None else saved.num_tokens

    def restore(self, request: Request) -> None:
        saved = self._saved.pop(request.request_id)
        self.store.write_blocks(request.block_table[: saved.num_blocks], saved.content)
        request.num_computed_tokens = saved.num_tokens
        self.num_swapped_in += saved.num_blocks

    def forget(self, request: Request) -> None:
        self._saved.pop(request.request_id, None)
