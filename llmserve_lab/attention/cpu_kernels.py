"""Decode attention on a CPU, in loops that Numba compiles.

Queries, scores and sums are float32; keys and values float32 or the bits of a bfloat16. Tokens are
read `TILE` at a time, which saves most of the reading and writing of sums; where they do not come
out even, the last token is read again, with a weight of zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from llmserve_lab.attention.bfloat16 import number
from llmserve_lab.attention.numba_cache import kernel

NO_CAP = 0.0
NO_WINDOW = 2**62  # tokens; more than any context
TILE = 4  # tokens; what `_score` and `_mix` are written for
LOG2_E, LN_2 = numpy.float32(math.log2(math.e)), numpy.float32(math.log(2))
SMALLEST = numpy.float32(-87)  # e to this is the least number that float32 holds in full precision
TERMS = 6  # of the power series; the next one is below 2e-7
EXPONENT_BIAS, MANTISSA_BITS = 127, 23  # of a float32 (IEEE 754)


@kernel
def decode(
    queries: Any,
    keys: Any,
    values: Any,
    tables: Any,
    contexts: Any,
    block_size: int,
    scaling: float,
    window: int,
    softcap: float,
    output: Any,
) -> None:  # pragma: no cover (compiled)
    """queries, output: (rows, heads, dim); keys, values: (slots, KV heads, dim); tables: (rows,
    blocks); contexts: (rows,), int64. Keys and values are read once, in the order in which they
    lie: all heads of some tokens, then the next tokens."""
    longest = _in_tiles(tables.shape[1] * block_size)
    slots = numpy.empty(longest, numpy.int64)
    weights = numpy.empty((queries.shape[1], longest), numpy.float32)
    for row in range(queries.shape[0]):
        count = min(window, contexts[row])
        read = slots[: _in_tiles(count)]
        _locate(tables[row], contexts[row] - count, count, block_size, read)
        _score(queries[row], keys, read, scaling, weights)
        if softcap != NO_CAP:
            _cap(weights, count, softcap)
        _normalise(weights, count, read.shape[0])
        _mix(weights, values, read, output[row])


@kernel
def _in_tiles(count: int) -> int:  # pragma: no cover (compiled)
    """The next multiple of TILE."""
    return (count + TILE - 1) // TILE * TILE


@kernel
def _locate(
    table: Any, first: int, count: int, block_size: int, slots: Any
) -> None:  # pragma: no cover (compiled)
    """slots[t] = where token first + t lies; from `count` on, the last one again"""
    block, offset = first // block_size, first % block_size
    for t in range(count):
        slots[t] = table[block] * block_size + offset
        offset += 1
        if offset == block_size:
            block, offset = block + 1, 0
    slots[count:] = slots[count - 1]


@kernel
def _score(
    heads: Any, keys: Any, slots: Any, scaling: float, weights: Any
) -> None:  # pragma: no cover (compiled)
    """weights[h, t] = scaling * heads[h] . the key of token t for that head"""
    group = heads.shape[0] // keys.shape[1]
    scale, zero = numpy.float32(scaling), numpy.float32(0)
    for t in range(0, slots.shape[0], TILE):
        a, b, c, d = slots[t], slots[t + 1], slots[t + 2], slots[t + 3]
        for kv_head in range(keys.shape[1]):
            for h in range(kv_head * group, (kv_head + 1) * group):
                of_a, of_b, of_c, of_d = zero, zero, zero, zero
                for i in range(heads.shape[1]):
                    query = heads[h, i]
                    of_a += query * number(keys[a, kv_head, i])
                    of_b += query * number(keys[b, kv_head, i])
                    of_c += query * number(keys[c, kv_head, i])
                    of_d += query * number(keys[d, kv_head, i])
                weights[h, t], weights[h, t + 1] = scale * of_a, scale * of_b
                weights[h, t + 2], weights[h, t + 3] = scale * of_c, scale * of_d


@kernel
def _cap(weights: Any, count: int, softcap: float) -> None:  # pragma: no cover (compiled)
    """weights[h, t] = softcap * tanh(weights[h, t] / softcap)"""
    cap = numpy.float32(softcap)
    for h in range(weights.shape[0]):
        for t in range(count):
            weights[h, t] = cap * numpy.tanh(weights[h, t] / cap)


@kernel
def _normalise(weights: Any, count: int, padded: int) -> None:  # pragma: no cover (compiled)
    """Softmax of each row's first `count` values; zeros from there to `padded`."""
    for h in range(weights.shape[0]):
        top = weights[h, 0]
        for t in range(1, count):
            top = max(top, weights[h, t])
        total = numpy.float32(0)
        for t in range(count):
            weights[h, t] = exponential(weights[h, t] - top)
            total += weights[h, t]
        share = numpy.float32(1) / total
        for t in range(count):
            weights[h, t] *= share
        for t in range(count, padded):
            weights[h, t] = numpy.float32(0)


@kernel
def exponential(x: Any) -> Any:  # pragma: no cover (compiled)
    """e to the power of x <= 0, without a call, so that many are computed at once. As 2**n * e**r
    with a whole n and r at most half of ln 2 from zero: a power series, and n as exponent bits."""
    x = max(x, SMALLEST)
    n = numpy.rint(x * LOG2_E)
    r = x - n * LN_2
    series = numpy.float32(1)
    for term in range(TERMS, 0, -1):
        series = numpy.float32(1) + series * r * numpy.float32(1 / term)
    bits = numpy.uint32(numpy.int32(n) + EXPONENT_BIAS) << MANTISSA_BITS
    return series * numpy.uint32(bits).view(numpy.float32)


@kernel
def _mix(weights: Any, values: Any, slots: Any, result: Any) -> None:  # pragma: no cover (compiled)
    """result[h] = sum of weights[h, t] * the value of token t for that head"""
    group = result.shape[0] // values.shape[1]
    result[:] = numpy.float32(0)
    for t in range(0, slots.shape[0], TILE):
        a, b, c, d = slots[t], slots[t + 1], slots[t + 2], slots[t + 3]
        for kv_head in range(values.shape[1]):
            for h in range(kv_head * group, (kv_head + 1) * group):
                of_a, of_b = weights[h, t], weights[h, t + 1]
                of_c, of_d = weights[h, t + 2], weights[h, t + 3]
                for i in range(result.shape[1]):
                    result[h, i] += (
                        of_a * number(values[a, kv_head, i])
                        + of_b * number(values[b, kv_head, i])
                        + of_c * number(values[c, kv_head, i])
                        + of_d * number(values[d, kv_head, i])
                    )
