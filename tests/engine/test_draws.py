"""A draw looks one number up in the cumulated weights; a seeded number is a pure function."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab.engine.draws import draw, uniform

weights_of_a_row = st.lists(st.integers(0, 6), min_size=1, max_size=40).filter(any)


def looked_up(weights, number):
    """The first index whose exact cumulated share is above `number`."""
    target = Fraction(number) * sum(weights)
    ends = itertools.accumulate(weights)
    return next(index for index, end in enumerate(ends) if end > target)


@settings(max_examples=300)
@given(weights_of_a_row, st.integers(0, 2**20 - 1))
def test_a_draw_is_the_exact_look_up(weights, numerator):
    number = numerator / 2**20
    (found,) = draw(torch.tensor([weights]).float(), torch.tensor([number]).double()).tolist()
    assert found == looked_up(weights, number)


@settings(max_examples=300)
@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=70).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_no_rounding_leads_to_a_token_without_weight(weights, number):
    (found,) = draw(torch.tensor([weights]), torch.tensor([number]).double()).tolist()
    assert weights[found] > 0


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("vocabulary", [1, 2, 9, 10, 997])
def test_the_ends(vocabulary, number):
    weights = torch.zeros(1, vocabulary)
    weights[0, [vocabulary // 3, vocabulary // 2]] = 1e-30
    (found,) = draw(weights, torch.tensor([number]).double()).tolist()
    assert found == (vocabulary // 2 if number else vocabulary // 3)


def test_rows_of_a_batch_are_drawn_alone():
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(20, 133, generator=generator)
    numbers = torch.rand(20, dtype=torch.float64, generator=generator)
    together = draw(weights, numbers).tolist()
    alone = [draw(weights[i : i + 1], numbers[i : i + 1]).item() for i in range(20)]
    assert together == alone
    assert len(set(together)) > 10


def test_seeded_numbers_are_the_same_everywhere():
    """Part of what a seed promises: a change here changes every seeded text."""
    found = [uniform(0, 0), uniform(0, 1), uniform(2**63 - 1, 7)]
    assert found == [0.0564663990004608, 0.44008326622012284, 0.6488729395303772]


def test_seeded_numbers_are_even():
    """Mean and variance over draws of one seed and over seeds, within five standard errors."""
    for numbers in ([uniform(3, i) for i in range(5000)], [uniform(s, 0) for s in range(5000)]):
        mean = sum(numbers) / 5000
        variance = sum((x - mean) ** 2 for x in numbers) / 5000
        assert all(0 <= x < 1 for x in numbers)
        assert abs(mean - 1 / 2) < 5 * math.sqrt(1 / 12 / 5000)
        assert abs(variance - 1 / 12) < 5 * math.sqrt(1 / 180 / 5000)
        assert len(set(numbers)) == 5000
