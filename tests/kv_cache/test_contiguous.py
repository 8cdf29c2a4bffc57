"""Reservations in one piece, against a slow model of the memory: one owner per slot."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from llmserve_lab.kv_cache import (
    ContiguousAllocator,
    ContiguousKVCache,
    KVShape,
    OutOfMemoryError,
    Region,
)


def free_runs(slots):
    """(start, length) of each run of None."""
    runs, position = [], 0
    while position < len(slots):
        stop = position
        while stop < len(slots) and slots[stop] is None:
            stop += 1
        if stop > position:
            runs.append((position, stop - position))
        position = max(stop, position + 1)
    return runs


class AllocatorMachine(RuleBasedStateMachine):
    """`slots` holds each slot's owner, `used` each owner's tokens."""

    @initialize(num_slots=st.integers(1, 24), fit=st.sampled_from(["first", "best"]))
    def start(self, num_slots, fit):
        self.memory = ContiguousAllocator(num_slots, fit)
        self.slots, self.used, self.count = [None] * num_slots, {}, 0

    @rule(length=st.integers(1, 10))
    def allocate(self, length):
        runs = [run for run in free_runs(self.slots) if run[1] >= length]
        name = f"r{self.count}"
        before = self.memory.snapshot()
        if not runs:
            with pytest.raises(OutOfMemoryError) as error:
                self.memory.allocate(name, length)
            assert error.value.fragmented == (self.slots.count(None) >= length)
            assert self.memory.snapshot() == before
            return
        best = self.memory.fit == "best"
        start, _ = min(runs, key=lambda run: (run[1], run[0]) if best else run)
        assert self.memory.allocate(name, length) == Region(start, length, name)
        self.slots[start : start + length] = [name] * length
        self.used[name] = 0
        self.count += 1

    @precondition(lambda self: self.used)
    @rule(choice=st.integers(0, 20), num_tokens=st.integers(0, 6))
    def append(self, choice, num_tokens):
        name = list(self.used)[choice % len(self.used)]
        first, reserved = self.slots.index(name), self.slots.count(name)
        if self.used[name] + num_tokens > reserved:
            with pytest.raises(ValueError, match=f"reserved {reserved} slots"):
                self.memory.append(name, num_tokens)
            return
        begin = first + self.used[name]
        assert self.memory.append(name, num_tokens) == slice(begin, begin + num_tokens)
        self.used[name] += num_tokens

    @precondition(lambda self: self.used)
    @rule(choice=st.integers(0, 20))
    def free(self, choice):
        name = list(self.used)[choice % len(self.used)]
        self.memory.free(name)
        self.slots = [None if owner == name else owner for owner in self.slots]
        del self.used[name]

    @rule()
    def compact(self):
        before = {r.owner: r for r in self.memory.snapshot().regions if not r.free}
        moves = self.memory.compact()
        slots = [owner for owner in self.slots if owner is not None]
        self.slots = slots + [None] * (len(self.slots) - len(slots))
        assert self.memory.snapshot().external_fragmentation == 0
        assert [(a.owner, a.length, a.used) for a, _ in moves] == [
            (b.owner, b.length, b.used) for _, b in moves
        ]
        moved = {a.owner for a, b in moves if before[a.owner] == a and b.start < a.start}
        stayed = {name for name, r in before.items() if self.memory.region(name) == r}
        assert moved | stayed == set(before) and not moved & stayed

    @invariant()
    def measures_agree(self):
        if not hasattr(self, "memory"):
            return
        self.memory.check_integrity()
        now, runs = self.memory.snapshot(), free_runs(self.slots)
        num_free, largest = self.slots.count(None), max([length for _, length in runs], default=0)
        assert now.num_slots == len(self.slots)
        assert now.num_free == num_free
        assert now.num_reserved == len(self.slots) - num_free
        assert now.num_used == sum(self.used.values())
        assert now.internal_waste == now.num_reserved - now.num_used
        assert now.largest_free_run == largest
        assert now.external_fragmentation == (1 - largest / num_free if num_free else 0)
        owners = [region.owner for region in now.regions for _ in range(region.length)]
        assert owners == self.slots
        assert [(r.start, r.length) for r in now.regions if r.free] == runs

    def teardown(self):
        if not hasattr(self, "memory"):
            return
        for name in list(self.used):
            self.memory.free(name)
        assert self.memory.snapshot().regions == (Region(0, self.memory.num_slots),)


TestAllocatorMachine = AllocatorMachine.TestCase
TestAllocatorMachine.settings = settings(max_examples=100, stateful_step_count=30)


def test_a_request_that_fits_in_total_but_nowhere_in_one_piece():
    memory = ContiguousAllocator(12)
    for name in "abc":
        memory.allocate(name, 4)
    memory.free("a")
    memory.free("c")
    with pytest.raises(OutOfMemoryError, match="in total, but nowhere in one piece") as error:
        memory.allocate("d", 8)
    assert (error.value.wanted, error.value.num_free, error.value.largest_free_run) == (8, 8, 4)
    assert memory.snapshot().external_fragmentation == 0.5
    memory.free("b")
    assert memory.allocate("d", 8).start == 0


def test_too_large_is_not_called_fragmented():
    memory = ContiguousAllocator(4)
    with pytest.raises(OutOfMemoryError, match="5 slots wanted, 4 free: too few") as error:
        memory.allocate("a", 5)
    assert not error.value.fragmented


def test_best_fit_keeps_the_large_hole_that_first_fit_breaks():
    starts = {}
    for fit in ("first", "best"):
        memory = ContiguousAllocator(20, fit)
        for name, length in (("a", 8), ("b", 4), ("c", 3), ("d", 5)):
            memory.allocate(name, length)
        memory.free("a")
        memory.free("c")
        starts[fit] = memory.allocate("e", 3).start
        fits_still = memory.snapshot().largest_free_run == 8
        assert fits_still == (fit == "best")
    assert starts == {"first": 0, "best": 12}


def test_a_picture_in_characters():
    memory = ContiguousAllocator(10)
    memory.allocate("a", 4)
    memory.allocate("req-b", 3)
    memory.append("a", 2)
    memory.append("req-b")
    before = memory.snapshot()
    assert str(before) == "aa__b__..."
    memory.free("a")
    assert str(memory.snapshot()) == "....b__..."
    assert str(before) == "aa__b__...", "a snapshot stays as it was"


def test_misuse_is_refused_and_changes_nothing():
    memory = ContiguousAllocator(8)
    memory.allocate("a", 4)
    before = memory.snapshot()
    with pytest.raises(ValueError, match="'a' has a reservation already"):
        memory.allocate("a", 2)
    with pytest.raises(ValueError, match="at least 1 slot, not 0"):
        memory.allocate("b", 0)
    with pytest.raises(ValueError, match="reserved 4 slots and uses 0; 5 more"):
        memory.append("a", 5)
    for unknown in ("b", None):
        with pytest.raises(KeyError, match="has no reservation"):
            memory.free(unknown)
    assert memory.snapshot() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [({"num_slots": 0}, "num_slots must be at least 1"), ({"fit": "worst"}, "fit must be")],
)
def test_a_memory_that_makes_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        ContiguousAllocator(**({"num_slots": 4} | options))


def test_the_tensors_follow_the_reservations():
    shape = KVShape(2, 3, 4)
    cache = ContiguousKVCache(shape, 10, torch.float32, torch.device("cpu"))
    assert cache.num_bytes == 10 * shape.bytes_per_token(4)
    written = {}
    for name in "ab":
        cache.allocate(name, 5)
        keys, values = torch.randn(3, 3, 4), torch.randn(3, 3, 4)
        for part in (slice(0, 2), slice(2, 3)):
            slots = cache.append(name, part.stop - part.start)
            cache.write(1, slots, keys[part], values[part])
        written[name] = keys, values
    for name, (keys, values) in written.items():
        read_keys, read_values = cache.read(1, name)
        assert torch.equal(read_keys, keys)
        assert torch.equal(read_values, values)
        assert read_keys.data_ptr() == cache.keys[1][cache.region(name).start].data_ptr()
    assert cache.keys[0].count_nonzero() == 0


def test_compaction_takes_keys_and_values_along():
    shape = KVShape(2, 1, 2)
    cache = ContiguousKVCache(shape, 20, torch.float32, torch.device("cpu"))
    written = {}
    for name, length, used in (("a", 3, 1), ("b", 6, 6), ("c", 2, 0), ("d", 7, 5)):
        cache.allocate(name, length)
        slots = cache.append(name, used)
        written[name] = torch.randn(used, 1, 2), torch.randn(used, 1, 2)
        for layer in range(2):
            cache.write(layer, slots, *(part + layer for part in written[name]))
    cache.free("a")  # b then moves by less than its own length, and over itself
    moves = cache.compact()
    assert [(a.owner, a.start, b.start) for a, b in moves] == [
        ("b", 3, 0), ("c", 9, 6), ("d", 11, 8)
    ]  # fmt: skip
    for name in "bd":
        for layer in range(2):
            for expected, kept in zip(written[name], cache.read(layer, name), strict=True):
                assert torch.equal(kept, expected + layer)
    assert cache.compact() == []


def test_an_allocator_that_overlooks_a_hole_is_not_called_fragmented():
    error = OutOfMemoryError(wanted=4, num_free=9, largest_free_run=5)
    assert not error.fragmented and "found no place although there is one" in str(error)
