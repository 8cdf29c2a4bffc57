"""The KV cache before PagedAttention: each request reserves its longest possible length in one
piece (Kwon et al. 2023, section 3.1). First and best fit: Knuth, TAOCP 1, section 2.5."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from llmserve_lab.kv_cache.memory_map import MemoryMap, Region
from llmserve_lab.kv_cache.shape import KVShape

if TYPE_CHECKING:
    import torch

FIRST_FIT, BEST_FIT = "first", "best"


class OutOfMemoryError(RuntimeError):
    """A reservation found no place; nothing was changed. All numbers are slots."""

    def __init__(self, wanted: int, num_free: int, largest_free_run: int) -> None:
        self.wanted, self.num_free = wanted, num_free
        self.largest_free_run = largest_free_run
        where = f"the largest free run has {largest_free_run}"
        why = "it would fit in total, but nowhere in one piece" if self.fragmented else "too few"
        if wanted <= largest_free_run:
            why = "the allocator found no place although there is one"
        super().__init__(f"{wanted} slots wanted, {num_free} free: {why} ({where}).")

    @property
    def fragmented(self) -> bool:
        """Whether only external fragmentation stands in the way."""
        return self.largest_free_run < self.wanted <= self.num_free


class ContiguousAllocator:
    """`num_slots` token slots, reserved in one piece per request. Pure accounting: no tensors.

    fit: "first" takes the lowest free run that is long enough, "best" the shortest one (the lowest
    of equals). What is freed joins its free neighbours at once.
    """

    def __init__(self, num_slots: int, fit: str = FIRST_FIT) -> None:
        if num_slots < 1:
            raise ValueError(f"num_slots must be at least 1, not {num_slots}.")
        if fit not in (FIRST_FIT, BEST_FIT):
            raise ValueError(f'fit must be "{FIRST_FIT}" or "{BEST_FIT}", not {fit!r}.')
        self.num_slots, self.fit = num_slots, fit
        self._regions = [Region(0, num_slots)]

    def snapshot(self) -> MemoryMap:
        """The memory as it is now: for a picture, and for every measure of `MemoryMap`."""
        return MemoryMap(tuple(self._regions))

    def region(self, request_id: str) -> Region:
        """What a request holds.

        Raises:
            KeyError: it holds nothing.
        """
        return self._regions[self._index_of(request_id)]

    def allocate(self, request_id: str, length: int) -> Region:
        """Reserve `length` adjacent slots.

        Raises:
            OutOfMemoryError: no free run is long enough; its `fragmented` says whether there would
                be enough in total.
            ValueError: the request holds a region already, or `length` is below 1.
        """
        if length < 1:
            raise ValueError(f"A reservation has at least 1 slot, not {length}.")
        if any(region.owner == request_id for region in self._regions):
            raise ValueError(f"Request {request_id!r} has a reservation already; free it first.")
        taken = Region(self._choose(request_id, length), length, request_id)
        self._take(taken)
        return taken

    def append(self, request_id: str, num_tokens: int = 1) -> slice:
        """Use the next slots of a reservation; returns them.

        Raises:
            ValueError: the reservation is too short.
        """
        index = self._index_of(request_id)
        region = self._regions[index]
        used = region.used + num_tokens
        if num_tokens < 0 or used > region.length:
            raise ValueError(
                f"Request {request_id!r} reserved {region.length} slots and uses {region.used}; "
                f"{num_tokens} more cannot be used."
            )
        self._regions[index] = replace(region, used=used)
        return slice(region.start + region.used, region.start + used)

    def free(self, request_id: str) -> None:
        """Give a reservation back; neighbouring free runs become one."""
        index = self._index_of(request_id)
        first = index - 1 if index > 0 and self._regions[index - 1].free else index
        following = self._regions[index + 1 : index + 2]
        last = index + 1 if following and following[0].free else index
        start, stop = self._regions[first].start, self._regions[last].stop
        self._regions[first : last + 1] = [Region(start, stop - start)]

    def compact(self) -> list[tuple[Region, Region]]:
        """Slide all reservations to the front, in address order: what is free becomes one run.
        Returns those that moved, before and after, in the order in which they can be copied."""
        held = [region for region in self._regions if not region.free]
        starts = list(accumulate((region.length for region in held), initial=0))
        slid = [replace(region, start=start) for region, start in zip(held, starts, strict=False)]
        rest = Region(starts[-1], self.num_slots - starts[-1])
        self._regions = [*slid, rest] if rest.length else slid
        return [(a, b) for a, b in zip(held, slid, strict=True) if a.start != b.start]

    def check_integrity(self) -> None:
        """Assert that the regions tile the memory and that no two free ones touch."""
        position, was_free = 0, False
        for region in self._regions:
            assert region.start == position, f"a gap or an overlap at slot {position}"
            assert region.length > 0 and 0 <= region.used <= region.length, region
            assert not (region.free and was_free), f"free runs were not joined at {position}"
            position, was_free = region.stop, region.free
        assert position == self.num_slots

    def _choose(self, request_id: str, length: int) -> int:
        """The slot at which a reservation is to start."""
        holes = [region for region in self._regions if region.free and region.length >= length]
        if not holes:
            raise self._no_room(length)
        if self.fit == FIRST_FIT:
            return holes[0].start
        return min(holes, key=lambda hole: hole.length).start

    def _no_room(self, length: int) -> OutOfMemoryError:
        now = self.snapshot()
        return OutOfMemoryError(length, now.num_free, now.largest_free_run)

    def _take(self, taken: Region) -> None:
        """Cut a region out of the free run that it lies in."""
        index = next(i for i, r in enumerate(self._regions) if r.start <= taken.start < r.stop)
        hole = self._regions[index]
        before = Region(hole.start, taken.start - hole.start)
        after = Region(taken.stop, hole.stop - taken.stop)
        self._regions[index : index + 1] = [r for r in (before, taken, after) if r.length]

    def _index_of(self, request_id: str) -> int:
        for index, region in enumerate(self._regions):
            if region.owner == request_id and request_id is not None:
                return index
        raise KeyError(f"Request {request_id!r} has no reservation.")


class ContiguousKVCache(ContiguousAllocator):
    """The same with tensors. keys, values: per layer (slots, KV heads, head dim)."""

    def __init__(
        self,
        shape: KVShape,
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
        fit: str = FIRST_FIT,
    ) -> None:
        from llmserve_lab.kv_cache.zeros import zeros

        super().__init__(num_slots, fit)
        self.shape = shape
        size = (num_slots, shape.num_kv_heads, shape.head_dim)
        layers = range(shape.num_layers)
        self.keys = [zeros(size, dtype, device) for _ in layers]
        self.values = [zeros(size, dtype, device) for _ in layers]

    def write(self, layer: int, slots: slice, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store new tokens in the slots that `append` returned. keys, values: (tokens, KV heads,
        head dim)."""
        self.keys[layer][slots] = keys
        self.values[layer][slots] = values

    def read(self, layer: int, request_id: str) -> tuple[torch.Tensor, torch.Tensor]:
        """A request's keys and values, in place: (used, KV heads, head dim) each."""
        region = self.region(request_id)
        slots = slice(region.start, region.start + region.used)
        return self.keys[layer][slots], self.values[layer][slots]

    def compact(self) -> list[tuple[Region, Region]]:
        """As above, with the keys and values of all used slots."""
        moves = super().compact()
        for before, after in moves:
            source = slice(before.start, before.start + before.used)
            target = slice(after.start, after.start + after.used)
            for tensor in (*self.keys, *self.values):
                tensor[target] = tensor[source].clone()  # the two may overlap
        return moves

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensors hold."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))
