"""What attention must know about a batch: which tokens belong to whom, and where their KV lies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from llmserve_lab.attention.upload import upload
from llmserve_lab.kv_cache import KVCache, slots_of

if TYPE_CHECKING:
    import torch

Made = TypeVar("Made")


class Segment(NamedTuple):
    """One request's tokens in a batch: positions `start` to `start + num_tokens - 1`, which lie at
    rows `row` to `row + num_tokens - 1` of the flattened batch."""

    row: int
    start: int
    num_tokens: int
    block_table: list[int]

    @property
    def context(self) -> int:
        """Tokens that the last one attends to, itself included, where no window ends sooner."""
        return self.start + self.num_tokens

    def first_key(self, window: int | None) -> int:
        """The first position that any of the tokens attends to; window: tokens that one sees."""
        return 0 if window is None else max(0, self.start + 1 - window)


class Reads(NamedTuple):
    """Slots to read, and a mask (bool) that is True where a query may see what is read."""

    slots: torch.Tensor | slice
    mask: torch.Tensor


class BatchMetadata:
    """A flattened batch over one cache. Single-token segments (decode) are read together, padded to
    the longest; the others (prefill chunks) one by one. `window`: how many tokens one attends to,
    itself included (Beltagy et al. 2020, section 3.1), or None for all."""

    def __init__(self, cache: KVCache, segments: list[Segment], device: torch.device) -> None:
        self.cache, self.segments, self.device = cache, segments, device
        self.chunks = [s for s in segments if s.num_tokens > 1]
        self.singles = [s for s in segments if s.num_tokens == 1]
        self._single_reads: dict[int | None, Reads] = {}
        self._chunk_reads: dict[int | None, list[Reads]] = {}
        self._made: dict[Callable[[BatchMetadata], Any], Any] = {}

    def once(self, make: Callable[[BatchMetadata], Made]) -> Made:
        """What `make` makes of this batch: in the first layer, and the same for the others."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]

    @cached_property
    def slot_mapping(self) -> torch.Tensor:
        """(tokens,) int64: where each new token's keys and values are written."""
        size = self.cache.block_size
        return self._tensor(
            [
                slot
                for s in self.segments
                for slot in slots_of(s.block_table, s.start, s.context, size)
            ]
        )

    @cached_property
    def is_decode(self) -> bool:
        """Whether there are single tokens only, one in each row: what is read is in its place."""
        return [s.row for s in self.singles] == list(range(len(self.segments)))

    @cached_property
    def single_rows(self) -> torch.Tensor:
        """(singles,) int64: the rows of the batch that hold single tokens."""
        return self._tensor([s.row for s in self.singles])

    @cached_property
    def single_tables(self) -> torch.Tensor:
        """(singles, longest table) int64: block tables, padded with the null block."""
        null_block = self.cache.null_slot // self.cache.block_size
        longest = max(len(s.block_table) for s in self.singles)
        return self._tensor(
            [s.block_table + [null_block] * (longest - len(s.block_table)) for s in self.singles]
        )

    @cached_property
    def single_contexts(self) -> torch.Tensor:
        """(singles,) int64: tokens up to each, itself included."""
        return self._tensor([s.context for s in self.singles])

    def single_reads(self, window: int | None = None) -> Reads:
        """Slots (singles, longest) int64, padded with the null slot; mask (singles, 1, 1, longest).
        Longest: the longest context, or the window where that is shorter."""
        if window not in self._single_reads:
            self._single_reads[window] = self._read_singles(window)
        return self._single_reads[window]

    def _read_singles(self, window: int | None) -> Reads:
        import torch

        longest = max(s.context - s.first_key(window) for s in self.singles)
        first = self._tensor([s.first_key(window) for s in self.singles])
        positions = first[:, None] + torch.arange(longest, device=self.device)
        mask = positions < self.single_contexts[:, None]
        size = self.cache.block_size
        blocks = (positions // size).clamp_(max=self.single_tables.shape[1] - 1)
        slots = self.single_tables.gather(1, blocks) * size + positions % size
        return Reads(slots.masked_fill(~mask, self.cache.null_slot), mask[:, None, None, :])

    def chunk_reads(self, window: int | None = None) -> list[Reads]:
        """Per chunk, slots for the positions from `first_key` on, a slice where its blocks are
        adjacent, which reads them in place, else (keys,) int64; mask (tokens, keys)."""
        if window not in self._chunk_reads:
            self._chunk_reads[window] = [self._read_chunk(s, window) for s in self.chunks]
        return self._chunk_reads[window]

    def _read_chunk(self, chunk: Segment, window: int | None) -> Reads:
        import torch

        first = chunk.first_key(window)
        queries = torch.arange(chunk.start, chunk.context, device=self.device)[:, None]
        keys = torch.arange(first, chunk.context, device=self.device)[None, :]
        mask = keys <= queries
        if window is not None:
            mask &= keys > queries - window
        return Reads(self._chunk_slots(chunk, first), mask)

    def _chunk_slots(self, chunk: Segment, first: int) -> torch.Tensor | slice:
        import torch

        table, size = chunk.block_table, self.cache.block_size
        if table == list(range(table[0], table[0] + len(table))):
            return slice(table[0] * size + first, table[0] * size + chunk.context)
        positions = torch.arange(first, chunk.context, device=self.device)
        return self._tensor(table)[positions // size] * size + positions % size

    def _tensor(self, values: list) -> torch.Tensor:
        return upload(values, self.device)
