"""A W8A8 layer for CPUs in loops that Numba compiles: codes, integer sums and scales.

What `int8_linear.int8_linear` computes with torch, bit by bit: integer sums are exact in any order,
and the float operations around them are the same, one after another. `linear` is all of a layer;
`quantize` and `scale_sums` are what is around a product of integers by torch.
"""

from __future__ import annotations

from typing import Any

import numpy

from llmserve_lab.attention.numba_cache import exact_kernel

MAGNITUDE = 0x7FFFFFFF  # the bits of a float32 without its sign: they sort like what they stand for
LARGEST = 127  # of a code
SMALLEST = 1e-30  # magnitude that is told from zero


def prepare() -> None:
    """Compile the kernels, or load what an earlier process compiled: seconds that would otherwise
    be part of the first step."""
    rows, weight = numpy.ones((1, 1), numpy.float32), numpy.ones((1, 1), numpy.int8)
    linear(rows, weight, rows[0], rows[0, :0], numpy.empty_like(rows))
    codes, scale = quantize(rows)
    scale_sums(codes.astype(numpy.int32), scale, rows[0], rows[0, :0], numpy.empty_like(rows))


def quantize(rows: Any) -> tuple[Any, Any]:
    """(rows, in) float32, contiguous, to codes of the same shape, int8, and scales, (rows,)."""
    codes = numpy.empty(rows.shape, numpy.int8)
    scale = numpy.empty(rows.shape[0], numpy.float32)
    _quantize_all(rows, rows.view(numpy.uint32), codes, scale)
    return codes, scale


def linear(inputs: Any, weight: Any, scale: Any, bias: Any, outputs: Any) -> None:
    """inputs: (rows, in) float32, contiguous; weight: (out, in) int8; scale: (out,) float32; bias:
    (out,) float32, or (0,) for none; outputs: (rows, out) float32."""
    codes = numpy.empty(inputs.shape, numpy.int16)
    _linear(inputs, inputs.view(numpy.uint32), weight, scale, bias, codes, outputs)


@exact_kernel
def _linear(
    inputs: Any, bits: Any, weight: Any, scale: Any, bias: Any, codes: Any, outputs: Any
) -> None:  # pragma: no cover (compiled)
    token_scale = numpy.empty(inputs.shape[0], numpy.float32)
    _quantize_all(inputs, bits, codes, token_scale)
    by_four, by_two = codes.shape[0] // 4 * 4, weight.shape[0] // 2 * 2
    sums = numpy.empty((4, 2), numpy.int32)
    for o in range(0, weight.shape[0], 2):
        for r in range(0, codes.shape[0], 4):
            if r < by_four and o < by_two:
                _tile(codes[r : r + 4], weight[o : o + 2], sums)
            else:
                _rest(codes[r : r + 4], weight[o : o + 2], sums)
            for i in range(min(4, codes.shape[0] - r)):
                for j in range(min(2, weight.shape[0] - o)):
                    value = numpy.float32(sums[i, j]) * token_scale[r + i] * scale[o + j]
                    if bias.shape[0] > 0:
                        value += bias[o + j]
                    outputs[r + i, o + j] = value


@exact_kernel
def _quantize_all(
    rows: Any, bits: Any, codes: Any, scale: Any
) -> None:  # pragma: no cover (compiled)
    for r in range(rows.shape[0]):
        scale[r] = _quantize(rows[r], bits[r], codes[r])


@exact_kernel
def scale_sums(
    sums: Any, token_scale: Any, scale: Any, bias: Any, outputs: Any
) -> None:  # pragma: no cover (compiled)
    """sums: (rows, out) int32; token_scale: (rows,); scale, bias, outputs: as in `linear`."""
    for r in range(sums.shape[0]):
        for o in range(sums.shape[1]):
            outputs[r, o] = numpy.float32(sums[r, o]) * token_scale[r] * scale[o]
        for o in range(bias.shape[0]):
            outputs[r, o] += bias[o]


@exact_kernel
def _quantize(row: Any, bits: Any, codes: Any) -> Any:  # pragma: no cover (compiled)
    """Write a row's codes; returns their scale. What is not finite makes a scale that is not."""
    top = numpy.uint32(0)
    for i in range(bits.shape[0]):
        top = max(top, numpy.uint32(bits[i] & numpy.uint32(MAGNITUDE)))
    largest = numpy.uint32(top).view(numpy.float32)
    if largest < numpy.float32(SMALLEST):
        largest = numpy.float32(SMALLEST)
    scale = numpy.float32(largest / numpy.float32(LARGEST))
    for i in range(row.shape[0]):
        codes[i] = numpy.int8(numpy.int32(numpy.rint(row[i] / scale)))
    return scale


@exact_kernel
def _tile(codes: Any, weight: Any, sums: Any) -> None:  # pragma: no cover (compiled)
    """sums[i, j] = codes[i] . weight[j], four rows and two outputs at once: each number is loaded
    for several products."""
    a = b = c = d = e = f = g = h = numpy.int32(0)
    for k in range(weight.shape[1]):
        v, w = numpy.int32(weight[0, k]), numpy.int32(weight[1, k])
        x, y = numpy.int32(codes[0, k]), numpy.int32(codes[1, k])
        a, b = numpy.int32(a + x * v), numpy.int32(b + x * w)
        c, d = numpy.int32(c + y * v), numpy.int32(d + y * w)
        x, y = numpy.int32(codes[2, k]), numpy.int32(codes[3, k])
        e, f = numpy.int32(e + x * v), numpy.int32(f + x * w)
        g, h = numpy.int32(g + y * v), numpy.int32(h + y * w)
    sums[0, 0], sums[0, 1], sums[1, 0], sums[1, 1] = a, b, c, d
    sums[2, 0], sums[2, 1], sums[3, 0], sums[3, 1] = e, f, g, h


@exact_kernel
def _rest(codes: Any, weight: Any, sums: Any) -> None:  # pragma: no cover (compiled)
    """The same for fewer rows or outputs."""
    for i in range(codes.shape[0]):
        for j in range(weight.shape[0]):
            total = numpy.int32(0)
            for k in range(weight.shape[1]):
                product = numpy.int32(codes[i, k]) * numpy.int32(weight[j, k])
                total = numpy.int32(total + product)
            sums[i, j] = total
