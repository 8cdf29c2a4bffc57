"""Where Numba's loops beat torch's operators on a CPU, and the arrays to run them on."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

DTYPES = (torch.float32, torch.bfloat16)
MAX_ROWS = 8  # of a product; with more of them a BLAS library is as fast
MAX_WIDE_ROWS = 2  # the same where the library has AVX-512 to work with
MAX_INT8_ROWS = 16  # of a product of 8-bit codes, likewise
MAX_THREADS = 2  # torch's; from three on its product reads the weights as fast as one loop


def array_of(parameter: torch.Tensor) -> Any:
    """The parameter as a NumPy array over the same memory, or None where no loop runs on it."""
    if parameter.device.type != "cpu" or parameter.dtype not in DTYPES or not find_spec("numba"):
        return None
    from llmserve_lab.attention import bfloat16

    compiled()
    return bfloat16.array_of(parameter.detach())


@cache
def compiled() -> Any:
    """The module of the loops, which an earlier process or this call has compiled."""
    from llmserve_lab.models import kernels

    kernels.prepare()
    return kernels


def few(inputs: torch.Tensor, most: int | None = None) -> bool:
    """Whether a product over these rows is bound by reading the weights. BLAS libraries are written
    for many rows: on some CPUs they read at a third of the speed of a plain loop."""
    most = most_rows() if most is None else most
    return inputs.shape[0] <= most and torch.get_num_threads() <= MAX_THREADS


@cache
def most_rows() -> int:
    """Up to which a loop multiplies float32 or bf16 faster than torch's operator."""
    return MAX_WIDE_ROWS if torch.backends.cpu.get_cpu_capability() == "AVX512" else MAX_ROWS


def product(inputs: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
    """(rows, in) and an array (out, in) to (rows, out), of the inputs' dtype."""
    outputs = torch.empty(inputs.shape[0], weight.shape[0])
    compiled().product(weight, inputs.float().numpy(), outputs.numpy())
    return _as(inputs.dtype, outputs if bias is None else outputs.add_(bias))


def rms_norm(inputs: torch.Tensor, weight: Any, epsilon: float) -> torch.Tensor:
    """(..., features), contiguous, and an array (features,) to the same."""
    outputs, rows = torch.empty_like(inputs, dtype=torch.float32), (-1, weight.shape[0])
    given, made = inputs.float().numpy().reshape(rows), outputs.numpy().reshape(rows)
    compiled().rms_norm(given, weight, epsilon, made)
    return _as(inputs.dtype, outputs)


def _as(dtype: torch.dtype, outputs: torch.Tensor) -> torch.Tensor:
    """As `to`, which takes its time to see that there is nothing to do."""
    return outputs if outputs.dtype == dtype else outputs.to(dtype)


@cache
def has_int8_products() -> bool:
    """Whether this processor multiplies 8-bit numbers: torch's integer product is fast then. On
    others it is a plain loop, 20 times slower than the same in float32."""
    return torch.cpu._is_vnni_supported()


def takes_int8(inputs: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether `int8_linear` is the fastest way for these rows and this int8 weight."""
    return not has_int8_products() and few(inputs, MAX_INT8_ROWS) and surround_int8(weight)


def surround_int8(weight: torch.Tensor) -> bool:
    """Whether `int8_codes` and `scaled` run around a product with this int8 weight."""
    return weight.device.type == "cpu" and prepare_int8()


@cache
def prepare_int8() -> bool:
    """Compile the 8-bit loops, or load what an earlier process compiled. False where there is no
    compiler for them."""
    if not find_spec("numba"):
        return False
    from llmserve_lab.models import int8_kernels

    int8_kernels.prepare()
    return True


def int8_codes(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, in) to int8 codes and one scale per row, (rows,) float32, on a CPU: what
    `llmserve_lab.models.int8_linear.quantized` finds, bit by bit."""
    from llmserve_lab.models import int8_kernels

    codes, scale = int8_kernels.quantize(rows.detach().float().contiguous().numpy())
    return torch.from_numpy(codes), torch.from_numpy(scale)


def scaled(
    sums: torch.Tensor, token_scale: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Integer sums (rows, out) times the scales of rows and of outputs, float32, on a CPU."""
    from llmserve_lab.models import int8_kernels

    outputs = torch.empty(sums.shape)
    parts = (sums, token_scale, scale, scale[:0] if bias is None else bias.float(), outputs)
    int8_kernels.scale_sums(*(part.detach().contiguous().numpy() for part in parts))
    return outputs


def int8_linear(
    inputs: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """(rows, in) to (rows, out) of the inputs' dtype, on a CPU. The rest as in
    `llmserve_lab.models.int8_linear.int8_linear`, whose numbers come out bit by bit."""
    from llmserve_lab.models import int8_kernels

    rows = inputs.detach().float().contiguous()
    outputs = torch.empty(len(rows), len(weight))
    bias = scale[:0] if bias is None else bias.float()
    codes, scales, biases = (part.detach().contiguous() for part in (weight, scale, bias))
    int8_kernels.linear(
        rows.numpy(), codes.numpy(), scales.numpy(), biases.numpy(), outputs.numpy()
    )
    return outputs.to(inputs.dtype)
