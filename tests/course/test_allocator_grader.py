"""What a learner is told about an allocator that is wrong."""

from __future__ import annotations

import pytest

from llmserve_lab.course import check
from llmserve_lab.course.checks.ex17 import FirstFit
from llmserve_lab.course.checks.ex17_allocators import ALLOCATORS
from llmserve_lab.course.checks.grader import CheckFailed

TOLD = {
    "never joins holes": (
        "for num_slots=12: after allocate('a', 4), allocate('b', 4), allocate('c', 4), free('a'), "
        "free('b'): allocate('d', 8) returned None, expected 0: 8 adjacent slots are free from "
        "there on."
    ),
    "reservations overlap by a slot": (
        "for num_slots=12: after allocate('a', 4): allocate('b', 4) returned 3, expected free "
        "slots: 0 to 3 belong to 'a'."
    ),
    "best fit": "allocate('e', 3) returned 12, expected 0, the first hole that is long enough.",
    "accepts a second free": (
        "after allocate('a', 4), free('a'): free('a') returned None, expected a KeyError: 'a' has "
        "no reservation."
    ),
    "accepts a second reservation": "expected a ValueError: 'a' has a reservation already.",
    "raises where there is no room": "raised ValueError, expected None: no hole is longer than 4.",
    "keeps its holes on the class": "the first object is right, but in a second one, ",
}


@pytest.mark.parametrize("mistake", TOLD)
def test_the_call_that_is_wrong_is_named(mistake):
    with pytest.raises(CheckFailed) as failure:
        check.ex17_allocator.grade(ALLOCATORS[mistake], 1)
    assert TOLD[mistake] in str(failure.value)


def test_a_right_one_passes_as_a_class_and_from_a_function():
    assert "right" in repr(check.ex17_allocator(FirstFit))
    assert "right" in repr(check.ex17_allocator(lambda num_slots: FirstFit(num_slots)))


@pytest.mark.parametrize("answer", [FirstFit(4), None, "FirstFit"])
def test_an_object_is_no_class(answer):
    with pytest.raises(CheckFailed, match=r"hand over your class itself, as in check\.ex17_alloc"):
        check.ex17_allocator(answer)


def test_an_error_within_is_told_with_its_line():
    class Broken(FirstFit):
        def allocate(self, owner, length):
            return self.nowhere[length]

    class Unmade:
        def __init__(self):
            """Takes no number of slots."""

    with pytest.raises(CheckFailed, match=r"allocate\('a', 4\) raised AttributeError.*self\.now"):
        check.ex17_allocator(Broken)
    with pytest.raises(CheckFailed, match="making one raised TypeError"):
        check.ex17_allocator(Unmade)


def test_what_is_blank_stays_blank():
    class Blank(FirstFit):
        def free(self, owner):
            raise NotImplementedError("exercise 17.6: give it back")

    with pytest.raises(NotImplementedError, match=r"exercise 17\.6"):
        check.ex17_allocator(Blank)
