"""bfloat16 in Numba's kernels, which has no such type: tensors go in as their bits, uint16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
from numba import types
from numba.extending import overload

if TYPE_CHECKING:
    import torch

LOWER_BITS = 16  # of a float32, which a bfloat16 leaves out


def array_of(tensor: torch.Tensor) -> Any:
    """The tensor's memory as a NumPy array: float32, or a bfloat16's bits as uint16."""
    import torch

    bits = tensor.dtype == torch.bfloat16
    return tensor.view(torch.uint16).numpy() if bits else tensor.numpy()


def number(value):  # pragma: no cover (compiled)
    """In a kernel: the float32 that an element of such an array stands for."""
    raise NotImplementedError("Only within a kernel.")


@overload(number)
def _number(value):  # Numba compares its arguments with the lambdas', annotations included
    if isinstance(value, types.Integer):
        return lambda value: numpy.uint32(value << LOWER_BITS).view(numpy.float32)
    return lambda value: value
