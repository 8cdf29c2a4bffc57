"""The block pool against a slow model of itself, under random operations."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from llmserve_lab.kv_cache import BlockPool, OutOfBlocksError

SIZE = 2
tokens = st.lists(st.integers(0, 1), max_size=8)


class PoolMachine(RuleBasedStateMachine):
    """Sequences take, share and give up blocks; `content` is what a perfect memory would know."""

    @initialize(num_blocks=st.integers(1, 8), constant=st.booleans())
    def start(self, num_blocks, constant):
        options = {"hash": lambda data: b"same"} if constant else {}
        self.constant = constant
        self.pool = BlockPool(num_blocks, SIZE, enable_prefix_caching=True, **options)
        self.sequences, self.content = [], {}

    @rule(ids=tokens)
    def serve(self, ids):
        """What a scheduler does for a new sequence, with the full blocks published at once."""
        blocks, prefixes = self.pool.match(ids)
        for index, block in enumerate(blocks):
            assert self.content[block] == tuple(ids[: (index + 1) * SIZE])
        assert len(blocks) * SIZE < max(1, len(ids))
        self.pool.share(blocks)
        missing = self.pool.blocks_for(len(ids)) - len(blocks)
        free = self.pool.num_free
        try:
            fresh = self.pool.allocate(missing)
        except OutOfBlocksError:
            assert missing > free == self.pool.num_free
            self.pool.release(blocks)
            return
        for block in fresh:
            self.content.pop(block, None)
        table = blocks + fresh
        self.sequences.append(table)
        for index in range(len(prefixes), len(ids) // SIZE):
            parent = prefixes[-1] if prefixes else None
            prefixes.append(self.pool.extend(parent, ids[index * SIZE : (index + 1) * SIZE]))
            self.content[table[index]] = tuple(ids[: (index + 1) * SIZE])
            self.pool.publish(table[index], prefixes[-1])

    @precondition(lambda self: self.sequences)
    @rule(choice=st.integers(0, 20))
    def end(self, choice):
        self.pool.release(self.sequences.pop(choice % len(self.sequences)))

    @invariant()
    def counts_are_right(self):
        self.pool.check_integrity()
        owned = [block for table in self.sequences for block in table]
        assert list(self.pool.refs()) == [owned.count(b) for b in range(self.pool.num_blocks)]
        assert self.pool.num_used + self.pool.num_free == self.pool.num_blocks
        assert all(self.pool.refs()[block] == 0 for block in self.pool.cached())

    def teardown(self):
        for table in getattr(self, "sequences", []):
            self.pool.release(table)
        if hasattr(self, "pool"):
            assert self.pool.num_free == self.pool.num_blocks


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


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


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 4), (4, 0), (-1, 4)])
def test_an_empty_pool_is_refused(num_blocks, block_size):
    with pytest.raises(ValueError, match="at least one block of one token"):
        BlockPool(num_blocks, block_size)


def test_the_integrity_check_notices():
    """A check that cannot fail would prove nothing."""
    for spoil in (
        lambda pool: pool._refs.__setitem__(1, 1),
        lambda pool: pool._free.pop(2),
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
