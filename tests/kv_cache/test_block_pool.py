"""The block pool against a slow model of itself, under random operations."""

import random
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from llmserve_lab.kv_cache import BlockPool, OutOfBlocksError

tokens = st.lists(st.integers(0, 1), max_size=8)


class PoolMachine(RuleBasedStateMachine):
    """Sequences start, grow, fork, rewind and end over a memory of tokens. Whatever they do, each
    reads its own tokens through its block table, and a hit holds the tokens it was asked for."""

    @initialize(num_blocks=st.integers(1, 10), constant=st.booleans(), size=st.integers(1, 3))
    def start(self, num_blocks, constant, size):
        options = {"hash": lambda data: b"same"} if constant else {}
        self.size = size
        self.pool = BlockPool(num_blocks, size, enable_prefix_caching=True, **options)
        self.memory = [[None] * size for _ in range(num_blocks)]
        self.sequences = []  # (token ids, block table, prefixes, salt)

    @rule(ids=tokens, salt=st.sampled_from(["", "x"]))
    def serve(self, ids, salt):
        """What a scheduler does for a new sequence."""
        blocks, prefixes = self.pool.match(ids, salt)
        for index, block in enumerate(blocks):
            assert self.memory[block] == ids[index * self.size : (index + 1) * self.size]
            assert prefixes[index].salt == salt
        assert len(blocks) * self.size < max(1, len(ids))
        self.pool.share(blocks)
        sequence = (ids[: len(blocks) * self.size], blocks, prefixes, salt)
        if self._write(sequence, ids[len(blocks) * self.size :]):
            self.sequences.append(sequence)
        else:
            self.pool.release(blocks)

    @precondition(lambda self: self.sequences)
    @rule(choice=st.integers(0, 20), more=tokens)
    def grow(self, choice, more):
        self._write(self.sequences[choice % len(self.sequences)], more)

    @precondition(lambda self: self.sequences)
    @rule(choice=st.integers(0, 20), count=st.integers(0, 4), more=tokens)
    def rewind(self, choice, count, more):
        """Replace the last tokens by others, as after a rejected draft."""
        ids, table, prefixes, _ = self.sequences[choice % len(self.sequences)]
        del ids[max(0, len(ids) - count) :]
        kept = self.pool.blocks_for(len(ids))
        self.pool.release(table[kept:])
        del table[kept:], prefixes[len(ids) // self.size :]
        self._write(self.sequences[choice % len(self.sequences)], more)

    @precondition(lambda self: self.sequences)
    @rule(choice=st.integers(0, 20))
    def fork(self, choice):
        ids, table, prefixes, salt = self.sequences[choice % len(self.sequences)]
        free = self.pool.num_free
        self.sequences.append((list(ids), self.pool.fork(table), list(prefixes), salt))
        assert self.pool.num_free == free, "a fork itself takes no block"

    @precondition(lambda self: self.sequences)
    @rule(choice=st.integers(0, 20))
    def end(self, choice):
        self.pool.release(self.sequences.pop(choice % len(self.sequences))[1])

    def _write(self, sequence, more):
        """Append tokens as an engine would; False if there is no room, and then nothing changed."""
        ids, table, prefixes, salt = sequence
        missing = self.pool.blocks_for(len(ids) + len(more)) - len(table)
        shared = self.pool.num_shared(table, len(ids)) if more else 0
        before = list(table), self.pool.refs(), self.pool.num_free
        if missing + shared > self.pool.num_free:
            with pytest.raises(OutOfBlocksError):
                self.pool.allocate(missing + shared)
            assert before == (table, self.pool.refs(), self.pool.num_free)
            return False
        if more:
            copies = self.pool.make_writable(table, len(ids))
            assert len(copies) == shared
            for source, destination in copies:
                self.memory[destination] = list(self.memory[source])
        table += self.pool.allocate(missing, after=table[-1] if table else None)
        for position, token in enumerate(more, start=len(ids)):
            block = table[position // self.size]
            assert self.pool.refs()[block] == 1, "a write into a block with other owners"
            self.memory[block][position % self.size] = token
        ids += more
        self._publish(ids, table, prefixes, salt)
        return True

    def _publish(self, ids, table, prefixes, salt):
        for index in range(len(prefixes), len(ids) // self.size):
            parent = prefixes[-1] if prefixes else None
            part = ids[index * self.size : (index + 1) * self.size]
            prefixes.append(self.pool.extend(parent, part, salt))
            self.pool.publish(table[index], prefixes[-1])

    @invariant()
    def everyone_reads_their_own_tokens(self):
        for ids, table, _, _ in getattr(self, "sequences", []):
            stored = [token for block in table for token in self.memory[block]]
            assert stored[: len(ids)] == ids

    @invariant()
    def counts_are_right(self):
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity()
        owned = [block for _, table, _, _ in self.sequences for block in table]
        assert list(self.pool.refs()) == [owned.count(b) for b in range(self.pool.num_blocks)]
        assert self.pool.num_used + self.pool.num_free == self.pool.num_blocks
        assert all(self.pool.refs()[block] == 0 for block in self.pool.cached())

    def teardown(self):
        for _, table, _, _ in getattr(self, "sequences", []):
            self.pool.release(table)
        if hasattr(self, "pool"):
            assert self.pool.num_free == self.pool.num_blocks


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=100, stateful_step_count=30)


def published(pool, ids):
    """Blocks of a sequence whose full blocks are published and which has ended."""
    table, parent = pool.allocate(pool.blocks_for(len(ids))), None
    for index in range(len(ids) // pool.block_size):
        part = ids[index * pool.block_size : (index + 1) * pool.block_size]
        parent = pool.extend(parent, part)
        pool.publish(table[index], parent)
    pool.release(table)
    return table


def test_allocation_is_all_or_nothing():
    pool = BlockPool(3, 4)
    pool.allocate(2)
    with pytest.raises(OutOfBlocksError, match=r"2 blocks wanted, 1 free"):
        pool.allocate(2)
    assert pool.num_free == 1
    assert pool.refs() == (1, 1, 0)


def test_a_double_release_is_refused():
    pool = BlockPool(2, 4)
    table = pool.allocate(1)
    pool.release(table)
    with pytest.raises(ValueError, match="Block 0 is free already"):
        pool.release(table)
    pool.check_integrity()


def test_a_shared_block_lives_until_its_last_owner_leaves():
    pool = BlockPool(2, 4)
    table = pool.allocate(1)
    pool.share(table)
    pool.release(table)
    assert pool.num_free == 1
    pool.release(table)
    assert pool.num_free == 2


def test_the_least_recently_used_content_goes_first_and_a_sequence_from_its_end():
    pool = BlockPool(4, 1, enable_prefix_caching=True)
    old, new = published(pool, [1, 2]), published(pool, [3, 4])
    assert pool.allocate(3) == [old[1], old[0], new[1]]
    assert pool.match([3, 4, 5])[0] == [new[0]]
    assert pool.match([1, 2, 3])[0] == []


def test_blocks_without_content_are_used_before_cached_ones():
    pool = BlockPool(3, 2, enable_prefix_caching=True)
    cached = published(pool, [1, 2])
    (plain,) = pool.allocate(1)
    pool.release([plain])
    assert pool.allocate(2) != cached
    assert pool.cached() == tuple(cached)


def test_without_prefix_caching_nothing_is_found():
    pool = BlockPool(4, 2)
    published(pool, [1, 2, 3, 4])
    assert pool.match([1, 2, 3, 4, 5]) == ([], [])
    assert pool.cached() == ()


def test_a_salt_separates_tenants():
    pool = BlockPool(4, 2, enable_prefix_caching=True)
    (block,) = pool.allocate(1)
    pool.publish(block, pool.extend(None, [1, 2], salt="x"))
    assert pool.match([1, 2, 3], salt="x")[0] == [block]
    assert pool.match([1, 2, 3], salt="y")[0] == []
    assert pool.match([1, 2, 3])[0] == []
    pool.release([block])


def test_the_same_block_after_another_parent_is_another():
    pool = BlockPool(6, 2, enable_prefix_caching=True)
    published(pool, [1, 2, 5, 6])
    published(pool, [3, 4])
    assert len(pool.match([1, 2, 5, 6, 0])[0]) == 2
    assert len(pool.match([3, 4, 5, 6, 0])[0]) == 1


def test_a_fork_shares_and_the_first_to_write_copies():
    pool = BlockPool(6, 4)
    first = pool.allocate(2)  # 6 tokens, say: one full block and half of another
    second = pool.fork(first)
    assert (second, pool.num_used) == (first, 2)
    assert second is not first
    assert pool.num_shared(first, start=6) == 1
    (copy,) = pool.make_writable(second, start=6)
    assert copy == (first[1], second[1])
    assert second[0] == first[0]
    assert pool.refs()[first[0]] == 2
    assert pool.make_writable(first, start=6) == [], "the last owner writes in place"
    pool.release(first)
    pool.release(second)
    assert pool.num_used == 0


def test_a_fork_at_a_block_border_copies_nothing():
    pool = BlockPool(6, 4)
    table = pool.allocate(2)
    other = pool.fork(table)
    assert pool.num_shared(other, start=8) == 0
    assert pool.make_writable(other, start=8) == []


def test_copy_on_write_without_a_free_block_changes_nothing():
    pool = BlockPool(2, 4)
    table = pool.allocate(2)
    other = pool.fork(table)
    with pytest.raises(OutOfBlocksError):
        pool.make_writable(other, start=6)
    assert other == table
    assert pool.refs() == (2, 2)


def test_content_that_is_overwritten_is_not_found_any_more():
    pool = BlockPool(4, 2, enable_prefix_caching=True)
    table = pool.allocate(1)
    pool.publish(table[0], pool.extend(None, [1, 2]))
    assert pool.match([1, 2, 3])[0] == table
    pool.make_writable(table, start=1)
    assert pool.match([1, 2, 3])[0] == []
    pool.check_integrity()


def test_the_hit_rate_counts_tokens():
    pool = BlockPool(4, 2, enable_prefix_caching=True)
    assert pool.hit_rate == 0
    pool.note_lookup(num_tokens=6, num_hits=0)
    pool.note_lookup(num_tokens=6, num_hits=4)
    assert (pool.prefix_cache_queries, pool.prefix_cache_hits) == (12, 4)
    assert pool.hit_rate == 4 / 12


class Queue:
    """A free list as one would write it first: the block that was freed first goes first."""

    def __init__(self, num_blocks):
        self.blocks = deque(range(num_blocks))

    def allocate(self, count, after=None):
        return [self.blocks.popleft() for _ in range(count)]

    def release(self, blocks):
        self.blocks.extend(blocks)


def adjacency_after_churn(pool, num_blocks, load, seed):
    """Blocks per run of adjacent ones, while sequences come, grow one block at a time, and go."""
    source, sequences, held, num_runs, total = random.Random(seed), [], 0, 0, 0
    for _ in range(400):
        while held < num_blocks * load - 16:
            sequences.append((pool.allocate(source.randint(1, 12)), source.randint(0, 12)))
            held += len(sequences[-1][0])
        for sequence in [s for s in sequences if source.random() < 0.25]:
            table, final_growth = sequence
            if source.random() < 1 / (1 + final_growth) or held == num_blocks:
                pool.release(table)
                held -= len(table)
                sequences.remove(sequence)
            else:
                table += pool.allocate(1, after=table[-1])
                held += 1
        tables = [table for table, _ in sequences]
        total += sum(map(len, tables))
        num_runs += sum(b != a + 1 for t in tables for a, b in zip([-2, *t], t, strict=False))
    return total / num_runs


@pytest.mark.parametrize(("load", "factor"), [(0.5, 4), (0.7, 3), (0.9, 1.1)])
def test_adjacent_blocks_are_handed_out_where_possible(load, factor):
    """The less of the pool is in use, the longer the runs; a plain queue ends at runs of one."""
    for seed in range(3):
        naive = adjacency_after_churn(Queue(1024), 1024, load, seed)
        ours = adjacency_after_churn(BlockPool(1024, 16), 1024, load, seed)
        assert naive < 1.3
        assert ours > factor * naive


def test_a_sequence_that_grows_among_others_stays_in_one_piece():
    pool = BlockPool(64, 16)
    tables = [pool.allocate(1) for _ in range(4)]
    for _ in range(15):
        for table in tables:
            table += pool.allocate(1, after=table[-1])
    for table in tables:
        assert table == list(range(table[0], table[0] + 16))


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 4), (4, 0), (-1, 4)])
def test_an_empty_pool_is_refused(num_blocks, block_size):
    with pytest.raises(ValueError, match="at least one block of one token"):
        BlockPool(num_blocks, block_size)


def test_the_integrity_check_notices():
    """A check that cannot fail would prove nothing."""
    for spoil in (
        lambda pool: pool._refs.__setitem__(1, 1),
        lambda pool: pool._free.remove(2),
        lambda pool: pool._free.add(0, cached=False),
        lambda pool: pool._prefix_of.pop(pool.cached()[0]),
        lambda pool: pool._refs.__setitem__(0, -1),
        lambda pool: pool._block_with.clear(),
        lambda pool: pool._block_with.update({next(iter(pool._block_with)): 3}),
    ):
        pool = BlockPool(4, 2, enable_prefix_caching=True)
        published(pool, [1, 2])
        pool.check_integrity()
        spoil(pool)
        with pytest.raises((AssertionError, KeyError)):
            pool.check_integrity()
