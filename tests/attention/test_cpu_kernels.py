"""The parts of the CPU's decode kernel, each against the same in float64."""

import numpy
import pytest

from llmserve_lab.attention import cpu_kernels
from llmserve_lab.attention.cpu_kernels import TILE


def test_exponential_is_e_to_the_power_of_x():
    x = numpy.linspace(-86, 0, 20_001, dtype=numpy.float32)
    found = numpy.array([cpu_kernels.exponential(value) for value in x], numpy.float64)
    numpy.testing.assert_allclose(found, numpy.exp(x.astype(numpy.float64)), rtol=1e-6)
    assert cpu_kernels.exponential(numpy.float32(0)) == 1


@pytest.mark.parametrize("x", [-88.0, -500.0, -3e38])
def test_what_is_too_small_is_next_to_nothing(x):
    assert 0 <= cpu_kernels.exponential(numpy.float32(x)) < 2e-38


@pytest.mark.parametrize("count", range(1, 2 * TILE + 2))
def test_softmax_of_any_number_of_tokens(count):
    padded = cpu_kernels._in_tiles(count)
    assert padded % TILE == 0 and 0 <= padded - count < TILE
    scores = numpy.random.default_rng(count).normal(0, 20, (3, padded)).astype(numpy.float32)
    wanted = numpy.exp(scores[:, :count].astype(numpy.float64))
    wanted /= wanted.sum(1, keepdims=True)
    cpu_kernels._normalise(scores, count, padded)
    numpy.testing.assert_allclose(scores[:, :count], wanted, rtol=1e-5, atol=1e-30)
    assert not scores[:, count:].any()


@pytest.mark.parametrize("count", range(1, 2 * TILE + 2))
def test_the_last_token_fills_the_last_tile(count):
    slots = numpy.empty(cpu_kernels._in_tiles(count), numpy.int64)
    cpu_kernels._locate(numpy.array([7, 2, 5, 0]), 1, count, 3, slots)
    wanted = [(7, 2, 5, 0)[token // 3] * 3 + token % 3 for token in range(1, 1 + count)]
    assert slots.tolist() == wanted + [wanted[-1]] * (len(slots) - count)
