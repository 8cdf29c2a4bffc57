"""A prefix is found by its digest and proved by its tokens."""

from hypothesis import given
from hypothesis import strategies as st

from llmserve_lab.kv_cache import Prefix

chains = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=2), min_size=1, max_size=4)
salts = st.sampled_from(["", "x", "y"])


def chain(blocks, salt="", **options):
    prefix = None
    for tokens in blocks:
        prefix = Prefix.after(prefix, tokens, salt, **options)
    return prefix


@given(chains, chains, salts, salts)
def test_same_as_is_equality_of_all_tokens(first, second, salt, other_salt):
    equal = first == second and salt == other_salt
    one, two = chain(first, salt), chain(second, other_salt)
    assert one.same_as(two) == two.same_as(one) == equal
    assert (one.digest == two.digest) == equal


@given(chains, chains)
def test_a_constant_hash_fools_only_the_digest(first, second):
    one, two = (chain(blocks, hash=lambda data: b"same") for blocks in (first, second))
    assert one.digest == two.digest
    assert one.same_as(two) == (first == second)


def test_the_digest_is_the_same_in_every_process():
    """It may be written to disk, and Python's own hash is not even stable between runs."""
    assert chain([[1, 2], [3]]).digest.hex() == "e2371135f28e80cd179d49fbb5819b94"
    assert len(chain([[1]]).digest) == 16


def test_large_ids_and_salts_do_not_run_into_one_another():
    assert not chain([[256]]).same_as(chain([[1, 0]]))
    assert chain([[256]]).digest != chain([[0, 1]]).digest
    assert chain([[1]], salt="a").digest != chain([[1]], salt="a\x01").digest
