"""What a learner is told about a block pool, and what the load itself looks after."""

import random

import pytest

from llmserve_lab.course import check
from llmserve_lab.course.checks.ex18_cases import SHARED, UNSHARED, WRITTEN
from llmserve_lab.course.checks.ex18_pools import CountedPool, FreeList, MyPool
from llmserve_lab.course.checks.grader import CheckFailed
from llmserve_lab.course.checks.pool_load import Fault, PoolLoad, random_load
from llmserve_lab.course.progress import open_store
from llmserve_lab.course.scattered_pool import ScatteredPool
from llmserve_lab.kv_cache import BlockPool, OutOfBlocksError


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMSERVE_LAB_HOME", str(tmp_path))


def said(grader, answer):
    with pytest.raises(CheckFailed) as failure:
        grader(answer)
    return str(failure.value).splitlines()[0]


def test_a_right_pool_is_told_and_recorded():
    note = check.ex18_my_pool(MyPool)
    assert repr(note).startswith("Exercise 18.5: right, on all ")
    assert open_store().get("exercises", "18.5")["passed"]


@pytest.mark.parametrize("pool", [BlockPool, ScatteredPool])
def test_the_order_of_blocks_is_the_pools_own_affair(pool):
    for grader in (check.ex18_free_list, check.ex18_counted_pool, check.ex18_my_pool):
        grader(pool)


def test_the_message_ends_with_the_operation_that_went_wrong():
    class Forgets(CountedPool):
        def share(self, blocks):
            pass

    assert said(check.ex18_counted_pool, Forgets) == (
        "Exercise 18.4, for num_blocks=3, block_size=2, load=[('admit', 'a', 3), "
        "('fork', 'a', 'b')]: after the last of these expected num_refs(1) to be 2, got 1."
    )


def test_an_error_in_the_pool_is_told_with_its_line():
    class Raises(FreeList):
        def allocate(self, count, after=None):
            return 1 / 0

    text = said(check.ex18_free_list, Raises)
    assert "expected no error, but your pool raised ZeroDivisionError" in text
    assert "`return 1 / 0`" in text and "load=[('admit', 'a', 3)]" in text


def test_an_error_when_the_pool_is_made_is_told():
    class Raises(FreeList):
        def __init__(self):
            pass

    assert "when the pool is made, expected no error" in said(check.ex18_free_list, Raises)


@pytest.mark.parametrize("answer", [None, FreeList(4, 2), "FreeList"])
def test_what_is_no_class_is_told(answer):
    assert "hand over your class itself" in said(check.ex18_free_list, answer)


def test_a_class_that_is_no_pool_is_told():
    assert "expected a BlockAllocator object, got" in said(check.ex18_free_list, lambda n, size: [])
    assert "expected no error" in said(check.ex18_free_list, dict)


def test_a_blank_method_passes_its_own_error_on():
    class Blank(FreeList):
        def allocate(self, count, after=None):
            raise NotImplementedError("exercise 18.3: do it")

    with pytest.raises(NotImplementedError, match=r"^exercise 18\.3: do it$"):
        check.ex18_free_list(Blank)
    assert open_store().get("exercises", "18.3") is None


@pytest.mark.parametrize("kinds", [UNSHARED, SHARED, WRITTEN])
@pytest.mark.parametrize("seed", range(20))
def test_every_random_load_plays_on_a_right_pool_and_takes_all_blocks_in_the_end(kinds, seed):
    rng = random.Random(seed)
    num_blocks, size = rng.randint(3, 6), rng.randint(1, 4)
    operations = random_load(rng, num_blocks, size, kinds, 24)
    load = PoolLoad(MyPool(num_blocks, size))
    for operation in operations:
        load.play(operation)
    assert load.tables.keys() == {"last"} and load.pool.num_free == 0
    assert {kind for kind, *_ in operations} <= set(kinds.split()) | {"end", "admit"}


def test_random_loads_hold_every_kind_of_operation():
    seen = {
        kind
        for seed in range(20)
        for kind, *_ in random_load(random.Random(seed), 5, 2, SHARED, 24)
    }
    assert seen == set(SHARED.split())


class TestPoolLoad:
    def test_a_write_into_a_shared_block_is_seen_by_its_other_reader(self):
        """The pool counts right, but hands out a block that another one holds."""
        load = PoolLoad(BlockPool(4, 2))
        load.play(("admit", "a", 2))
        load.tables["b"], load.texts["b"] = list(load.tables["a"]), [99, 98]
        load.pool.share(load.tables["a"])
        with pytest.raises(Fault, match="'b' to read its own tokens"):
            load.audit()

    def test_a_refusal_must_come_and_change_nothing(self):
        class Partly(BlockPool):
            def allocate(self, count, after=None):
                if count > self.num_free:
                    super().allocate(self.num_free)
                    raise OutOfBlocksError
                return super().allocate(count, after)

        load = PoolLoad(Partly(2, 2))
        with pytest.raises(Fault, match=r"expected num_refs\(0\) to be 0, got 1"):
            load.play(("admit", "a", 6))
