"""Looking up the same prompt again hashes only what is new, and finds what a fresh look finds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab.kv_cache import BlockPool
from llmserve_lab.kv_cache.prefix import blake2b

SIZE = 2


class CountingHash:
    def __init__(self):
        self.calls = 0

    def __call__(self, data):
        self.calls += 1
        return blake2b(data)


def hashing_pool(num_blocks=12):
    count = CountingHash()
    return BlockPool(num_blocks, SIZE, enable_prefix_caching=True, hash=count), count


def publish(pool, ids, salt="", start=None):
    """Compute `ids`: every full block is findable. Returns the table."""
    table = pool.allocate(pool.blocks_for(len(ids)))
    parent = None
    for index in range(len(ids) // SIZE):
        parent = pool.extend(parent, ids[index * SIZE : (index + 1) * SIZE], salt)
        pool.publish(table[index], parent)
    return table


def fresh_match(pool, ids, salt=""):
    """What a pool without a memory of earlier look-ups finds."""
    pool._chain.clear()
    return pool.match(ids, salt)


def test_a_prompt_that_is_looked_up_again_and_again_is_hashed_once():
    pool, count = hashing_pool()
    publish(pool, [1, 2, 3, 4, 5, 6])
    prompt = [1, 2, 3, 4, 9, 9, 7]
    found = pool.match(prompt)
    assert len(found[0]) == 2
    before = count.calls
    for _ in range(20):
        assert pool.match(prompt) == found
    assert count.calls == before


def test_a_block_that_is_published_meanwhile_is_found_and_one_that_is_evicted_is_not():
    pool, count = hashing_pool(num_blocks=6)
    prompt = [1, 2, 3, 4, 5, 6, 7]
    first = publish(pool, prompt[:2])
    assert pool.match(prompt)[0] == first
    table = publish(pool, prompt[:6])
    assert pool.match(prompt)[0] == [first[0], *table[1:]]
    pool.release(table)
    pool.release(first)
    pool.release(pool.allocate(pool.num_blocks))  # everything is overwritten
    assert pool.match(prompt) == ([], [])
    again = publish(pool, prompt[:4])
    before = count.calls
    assert pool.match(prompt)[0] == again
    assert count.calls - before <= 2  # at most those whose parents are new


def test_a_prompt_that_changes_in_place_is_not_taken_for_what_it_was():
    pool, _ = hashing_pool()
    publish(pool, [1, 2, 3, 4])
    prompt = [1, 2, 3, 4, 5]
    assert len(pool.match(prompt)[0]) == 2
    prompt[0] = 8
    assert pool.match(prompt) == ([], [])
    prompt[0] = 1
    assert len(pool.match(prompt, "tenant")[0]) == 0
    assert len(pool.match(prompt)[0]) == 2


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=9)
operations = st.lists(
    st.tuples(st.sampled_from(["publish", "drop", "match", "grow"]), prompts, st.integers(0, 5)),
    max_size=30,
)


@given(operations)
@settings(max_examples=150)
def test_what_is_found_never_depends_on_what_was_looked_up_before(steps):
    pool, _ = hashing_pool(num_blocks=8)
    held, latest = [], [1]
    for what, ids, number in steps:
        salt = "ab"[number % 2]
        if what == "publish" and pool.blocks_for(len(ids)) <= pool.num_free:
            held.append(publish(pool, ids, salt))
        elif what == "drop" and held:
            pool.release(held.pop(number % len(held)))
        elif what == "grow":
            latest.append(number % 2)
        else:
            latest = ids
        for wanted in (latest, latest, ids):
            assert_same(pool.match(wanted, salt), fresh_match(pool, wanted, salt))
            pool.match(latest, salt)
        pool.check_integrity()


def assert_same(one, other):
    assert one[0] == other[0]
    assert all(a is b for a, b in zip(one[1], other[1], strict=True))
