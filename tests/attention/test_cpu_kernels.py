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


@pytest.mark.parametrize(("rows", "dim"), [(2, 16), (40, 64), (8, 1024)])
def test_the_numbers_do_not_depend_on_where_keys_come_from(rows, dim):
    """Few keys, keys that fill more than a core's own memory, and long rows of them."""
    rng = numpy.random.default_rng(0)
    contexts = rng.integers(100, 161, rows)
    pools = [rng.random((rows * 160, 2, dim), dtype=numpy.float32) for _ in "kv"]
    tables = rng.permutation(rows * 40).reshape(rows, 40)
    queries = rng.random((rows, 4, dim), dtype=numpy.float32)
    for window in (cpu_kernels.NO_WINDOW, 17):
        output = numpy.full_like(queries, numpy.nan)
        options = 4, dim**-0.5, window, cpu_kernels.NO_CAP
        cpu_kernels.decode(queries, *pools, tables, contexts, *options, output)
        for row in range(rows):
            wanted = dense(queries[row], *pools, tables[row], contexts[row], window)
            numpy.testing.assert_allclose(output[row], wanted, rtol=2e-5)


def dense(heads, keys, values, table, context, window):
    """One request's attention in float64: (heads, dim)."""
    slots = (table[:, None] * 4 + numpy.arange(4)).ravel()[max(0, context - window) : context]
    own = [pool[slots].repeat(2, axis=1).astype(numpy.float64) for pool in (keys, values)]
    scores = numpy.einsum("hd,thd->ht", heads, own[0]) * heads.shape[1] ** -0.5
    weights = numpy.exp(scores - scores.max(1, keepdims=True))
    return numpy.einsum("ht,thd->hd", weights / weights.sum(1, keepdims=True), own[1])
