"""Loops for the CPU that Numba compiles: no compiler has to be installed for them.

Weights are float32 or the bits of a bfloat16, all else is float32. Sums run in the compiler's
order, as in any BLAS.
"""

from __future__ import annotations

from typing import Any

import numpy

from llmserve_lab.attention.bfloat16 import number
from llmserve_lab.attention.numba_cache import kernel


def prepare() -> None:
    """Compile the kernels, or load what an earlier process compiled: seconds that would otherwise
    be part of the first step."""
    one = numpy.ones((1, 1), numpy.float32)
    for weight in (one, one.astype(numpy.uint16)):
        product(weight, one, numpy.empty_like(one))
        rms_norm(one, weight[0], 1.0, numpy.empty_like(one))


@kernel
def product(weight: Any, inputs: Any, outputs: Any) -> None:  # pragma: no cover (compiled)
    """outputs[r, o] = weight[o] . inputs[r]: one pass over the weight, for few rows."""
    for o in range(weight.shape[0]):
        for r in range(inputs.shape[0]):
            total = numpy.float32(0)
            for i in range(weight.shape[1]):
                total += number(weight[o, i]) * inputs[r, i]
            outputs[r, o] = total


@kernel
def rms_norm(
    inputs: Any, weight: Any, epsilon: float, outputs: Any
) -> None:  # pragma: no cover (compiled)
    """outputs[r] = weight * inputs[r] / sqrt(mean of inputs[r] ** 2 + epsilon)"""
    for r in range(inputs.shape[0]):
        total = numpy.float32(0)
        for i in range(inputs.shape[1]):
            total += inputs[r, i] * inputs[r, i]
        scale = numpy.float32(1 / numpy.sqrt(total / inputs.shape[1] + epsilon))
        for i in range(inputs.shape[1]):
            outputs[r, i] = number(weight[i]) * (inputs[r, i] * scale)
