"""Where Numba's loops beat torch's operators on a CPU, and the arrays to run them on."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

DTYPES = (torch.float32, torch.bfloat16)
MAX_ROWS = 8  # of a product; with more of them a BLAS library is as fast
MAX_THREADS = 2  # torch's; from three on its product reads the weights as fast as one loop


def array_of(parameter: torch.Tensor) -> Any:
    """The parameter as a NumPy array over the same memory, or None where no loop runs on it."""
    if parameter.device.type != "cpu" or parameter.dtype not in DTYPES or not find_spec("numba"):
        return None
    from llmserve_lab.attention import bfloat16
    from llmserve_lab.models import kernels

    kernels.prepare()
    return bfloat16.array_of(parameter.detach())


def few(inputs: torch.Tensor) -> bool:
    """Whether a product over these rows is bound by reading the weights. BLAS libraries are written
    for many rows: on some CPUs they read at a third of the speed of a plain loop."""
    return inputs.shape[0] <= MAX_ROWS and torch.get_num_threads() <= MAX_THREADS


def product(inputs: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
    """(rows, in) and an array (out, in) to (rows, out), of the inputs' dtype."""
    from llmserve_lab.models import kernels

    outputs = torch.empty(inputs.shape[0], weight.shape[0])
    kernels.product(weight, inputs.float().numpy(), outputs.numpy())
    return (outputs if bias is None else outputs.add_(bias)).to(inputs.dtype)


def rms_norm(inputs: torch.Tensor, weight: Any, epsilon: float) -> torch.Tensor:
    """(..., features), contiguous, and an array (features,) to the same."""
    from llmserve_lab.models import kernels

    rows = inputs.float().view(-1, weight.shape[0])
    outputs = torch.empty(rows.shape)
    kernels.rms_norm(rows.numpy(), weight, epsilon, outputs.numpy())
    return outputs.view(inputs.shape).to(inputs.dtype)
