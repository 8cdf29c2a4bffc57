"""The shuffled plan of exercise 19: every order that works, and no other, and what is said of one
that does not."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from llmserve_lab.course import check
from llmserve_lab.course.checks.ex19 import _few
from llmserve_lab.course.checks.grader import CheckFailed
from llmserve_lab.course.plan_lines import LINES, WORKING, assembled, first_wrong_pair

DEEPER = 4


def indent(letter):
    return len(LINES[letter]) - len(LINES[letter].lstrip())


def is_python(order):
    """By the depth of the lines alone: a colon goes one deeper, all others stay or come back."""
    depth = 0
    for letter in order:
        opens, own = depth < 0, indent(letter)
        if (own != -depth) if opens else (own > depth):
            return False
        depth = -(own + DEEPER) if LINES[letter].endswith(":") else own
    return depth >= 0


def works(order):
    try:
        return _few(random.Random(0)).fault(assembled(order)) is None
    except (SyntaxError, NameError):
        return False


def test_of_all_orders_exactly_those_listed_work():
    possible = ["".join(order) for order in permutations(LINES) if is_python(order)]
    assert len(possible) > 100
    assert {order for order in possible if works(order)} == set(WORKING)


def test_depth_alone_tells_what_is_python():
    rng = random.Random(1)
    for _ in range(300):
        order = "".join(rng.sample(list(LINES), len(LINES)))
        try:
            assembled(order)
        except SyntaxError:
            assert not is_python(order)
        else:
            assert is_python(order)


@pytest.mark.parametrize("order", WORKING)
def test_every_working_order_is_accepted_as_text_and_as_a_list(order):
    check.ex19_order.grade(lambda: order, 1)
    check.ex19_order.grade(lambda: list(order), 1)
    with pytest.raises(ValueError, match="works"):
        first_wrong_pair(order)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("egaifdchb", r"first wrong pair is e, g: after e \(`batch, left = .*cannot be g \(`for "),
        ("chebgaifd", "first wrong pair is e, b: .*as it stands, the engine refuses a step"),
        ("cheagifdb", "first wrong pair is e, a: .*Python says: unexpected indent"),
        ("abcdefghi", r"the plan cannot begin with a \(`count = "),
        ("chegaifb", "expected the letters abcdefghi, each once"),
    ],
)
def test_the_first_wrong_pair_is_named(order, words):
    with pytest.raises(CheckFailed, match=words) as failure:
        check.ex19_order.grade(lambda: order, 1)
    assert "\n" not in str(failure.value)
