"""Only runs that did the same work are ranked."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.comparison.ranking import (
    NotComparableError,
    Run,
    differences,
    exact,
    first_difference,
    rank,
    sift,
)

OUTPUTS = ((5, 6, 7), (8, 9))
FIRST = Run(
    "ours", "lab 0", "w", "p", "float32", 1, (2, 4), (OUTPUTS,), seconds=(2.0, 4.0, 3.0)
)  # fmt: skip
OTHER = replace(FIRST, contestant="other", engine="other 1", seconds=(9.0, 5.0, 6.0))

CHANGES = {
    "weights": ({"weights": "x"}, "different weights: x against w"),
    "prompts": ({"prompts": "x"}, "different prompts: x against p"),
    "dtype": ({"dtype": "bfloat16"}, "different dtype: bfloat16 against float32"),
    "threads": ({"threads": 2}, "different threads: 2 against 1"),
    "warm-up": (
        {"warm_up": (0, 0)},
        "different warm-up: 0 requests, 0 tokens against 2 requests, 4 tokens",
    ),
    "token counts": (
        {"outputs": (((5, 6, 7), (8,)),)},
        "different token counts: 4 in 2 requests against 5 in 2",
    ),
    "a request more": (
        {"outputs": ((*OUTPUTS, ()),)},
        "different token counts: 5 in 3 requests against 5 in 2",
    ),
    "counts that add up to the same": (
        {"outputs": (((5, 6), (7, 8, 9)),)},
        "different token counts: 5 in 2 requests against 5 in 2",
    ),
    "outputs": (
        {"outputs": (((5, 6, 7), (8, 1)),)},
        "different outputs in 1 of 2 requests, first in request 1 at output token 1",
    ),
    "outputs of a later repeat": (
        {"outputs": (OUTPUTS, ((5, 0, 7), (8, 1)))},
        "different outputs in 2 of 2 requests, first in request 0 at output token 1",
    ),
}


def test_ratios_are_to_the_first_run_and_the_fastest_comes_first():
    fast = replace(FIRST, contestant="fast", seconds=(1.0, 2.0))
    ranked = rank([FIRST, OTHER, fast])
    assert [each.run.contestant for each in ranked] == ["fast", "ours", "other"]
    assert [each.ratio for each in ranked] == [0.5, 1.0, 2.0]  # medians 1.5, 3, 6
    assert [each.ratio_best for each in ranked] == [0.5, 1.0, 2.5]  # 1, 2, 5
    assert FIRST.num_tokens == 5


@pytest.mark.parametrize("change, reason", CHANGES.values(), ids=CHANGES)
def test_a_run_that_did_something_else_is_refused_by_name_and_reason(change, reason):
    different = replace(OTHER, **change)
    assert differences(FIRST, different) == [reason]
    with pytest.raises(NotComparableError, match="cannot be ranked") as refused:
        rank([FIRST, OTHER, different])
    assert f"other: {reason}" in str(refused.value)


def test_every_difference_is_said():
    found = differences(FIRST, replace(OTHER, threads=2, dtype="bfloat16", outputs=(((1, 2),),)))
    assert [reason.split()[1].rstrip(":") for reason in found] == ["dtype", "threads", "token"]


def test_other_times_engines_and_names_are_no_difference():
    assert differences(FIRST, OTHER) == []


def test_the_others_are_ranked_without_the_one_that_is_refused():
    wrong = replace(OTHER, contestant="wrong", threads=2)
    kept, refused = sift([FIRST, wrong, OTHER])
    assert kept == [FIRST, OTHER]
    assert refused == {"wrong": ["different threads: 2 against 1"]}
    rank(kept)


def test_nobody_is_compared_with_a_first_run_that_contradicts_itself():
    shaky = replace(FIRST, outputs=(OUTPUTS, ((5, 6, 7), (8, 1))))
    kept, refused = sift([shaky, OTHER])
    assert kept == []
    assert set(refused) == {"ours", "other"}
    assert "its own repeats" in refused["other"][0]


def test_the_rule_for_outputs_can_be_another():
    asked = []

    def lenient(ours, theirs):
        asked.append((ours, theirs))
        return []

    different = replace(OTHER, outputs=(((5, 6, 7), (8, 1)),))
    assert differences(FIRST, different, lenient) == []
    assert asked == [(OUTPUTS, different.outputs[0])]


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)


@given(st.lists(tokens, min_size=1, max_size=4).map(tuple), st.data())
def test_exact_means_equal(ours, data):
    theirs = tuple(data.draw(st.tuples(*[st.integers(0, 2)] * len(output))) for output in ours)
    assert (exact(ours, theirs) == []) == (ours == theirs)
    for left, right in zip(ours, theirs, strict=True):
        place = first_difference(left, right)
        assert left[:place] == right[:place]
        assert place == len(left) or left[place] != right[place]
