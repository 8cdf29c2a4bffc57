"""Which code computes attention: chosen by hardware, or by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Attention = Callable[..., "torch.Tensor"]  # the signature of reference.paged_attention
AUTO = "auto"
INTERPRETER = "TRITON_INTERPRET"  # the environment variable with which Triton runs on a CPU
TRITON_CAPABILITY = (7, 5)  # Turing, such as the T4
AMPERE = (8, 0)  # from here on tensor cores multiply bf16, and FlashAttention-2 runs
FLASH_TORCH = (2, 13)  # the first whose FlashAttention-2 reads block tables
FLASH_PAGE = 256  # tokens; its block tables point to pages of so many, or a multiple
LARGEST_HEAD = 256  # head dimension of both GPU backends


@dataclass(frozen=True, slots=True)
class Case:
    """What attention has to run on. needs: options of `reference.paged_attention` that the model
    uses ("window", "softcap", "sinks"). head_dim: None where it does not matter yet."""

    device: torch.device
    dtype: torch.dtype
    quantized_kv: bool = False
    needs: frozenset[str] = frozenset()
    block_size: int = 16
    head_dim: int | None = None


def attention_backend(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    quantized_kv: bool = False,
    needs: frozenset[str] = frozenset(),
    block_size: int = 16,
    head_dim: int | None = None,
) -> Attention:
    """The attention function called `name`, ready to run; "auto" takes the fastest that works here.

    "reference": plain torch, any device and dtype, a quantized KV cache, and every option. "cpu": a
    Numba kernel, float32 and bfloat16 on a CPU. "triton": our own kernels, on CUDA GPUs from the T4
    on. "flash": torch's FlashAttention-2, on CUDA GPUs from compute capability 8.0 on, for blocks
    of 256 tokens. The rest of the arguments: see `Case`.

    Raises:
        ValueError: no such backend, or one that does not work on this device, dtype, cache and
            model.
    """
    case = Case(device, dtype, quantized_kv, needs, block_size, head_dim)
    if name == AUTO:
        name = fastest(case)
    if name not in BACKENDS:
        raise ValueError(
            f"There is no attention backend {name!r}; use {AUTO!r} or one of {', '.join(BACKENDS)}."
        )
    why_not = REASONS[name](case)
    if why_not:
        raise ValueError(f"The {name} attention backend does not work here: {why_not}.")
    module = import_module(f"llmserve_lab.attention.{name}")
    module.prepare(dtype)
    return module.paged_attention


def backend_name(attention: Attention) -> str:
    """The name of a backend that `attention_backend` returned."""
    return attention.__module__.rpartition(".")[2]


def fastest(case: Case) -> str:
    """The first that works: flash or triton on CUDA, cpu on a CPU, else the reference."""
    candidates = {"cuda": ("flash", "triton"), "cpu": ("cpu",)}.get(case.device.type, ())
    return next((name for name in candidates if not REASONS[name](case)), "reference")


def working(case: Case) -> list[str]:
    """The backends that work."""
    return [name for name in BACKENDS if not REASONS[name](case)]


def why_not_reference(case: Case) -> str:
    """Nothing keeps it from working."""
    return ""


def why_not_cpu(case: Case) -> str:
    """What keeps the cpu backend from working; empty where nothing does."""
    import torch

    if case.device.type != "cpu":
        return f"the model is on {case.device.type}"
    if case.dtype not in (torch.float32, torch.bfloat16):
        return f"it computes in float32 and bfloat16 and the model is in {case.dtype}"
    missing = _what_is_missing(case, {"window", "softcap"})
    return missing or _not_installed("numba")


def why_not_triton(case: Case) -> str:
    """What keeps the triton backend from working; empty where nothing does."""
    import torch

    if case.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"it computes in 16 or 32 bits and the model is in {case.dtype}"
    missing = _what_is_missing(case, {"window", "softcap"}) or _too_wide(case)
    return _why_no_place_for_triton(case) or missing or _not_installed("triton")


def _why_no_place_for_triton(case: Case) -> str:
    import torch

    bf16 = case.dtype == torch.bfloat16
    if case.device.type == "cuda":
        old = _too_old(case, TRITON_CAPABILITY)
        return old or (_too_old(case, AMPERE, "bfloat16") if bf16 else "")
    if case.device.type != "cpu" or os.environ.get(INTERPRETER) != "1":
        return f"the model is on {case.device.type} and it needs a CUDA GPU"
    return "Triton's interpreter does not multiply bfloat16" if bf16 else ""


def why_not_flash(case: Case) -> str:
    """What keeps the flash backend from working; empty where nothing does."""
    import torch

    if case.device.type != "cuda":
        return f"the model is on {case.device.type} and it needs a CUDA GPU"
    if case.dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in 16 bits and the model is in {case.dtype}"
    if _release(torch.__version__) < FLASH_TORCH:
        wanted = ".".join(map(str, FLASH_TORCH))
        return f"torch {torch.__version__} has no block tables for it, {wanted} has"
    if case.block_size % FLASH_PAGE:
        return (
            f"it reads blocks of {FLASH_PAGE} tokens or a multiple, not of {case.block_size} "
            f"(set block_size={FLASH_PAGE})"
        )
    return _too_old(case, AMPERE) or _what_is_missing(case, {"window"}) or _too_wide(case, 8)


REASONS = {
    "reference": why_not_reference,
    "cpu": why_not_cpu,
    "triton": why_not_triton,
    "flash": why_not_flash,
}
BACKENDS = tuple(REASONS)


def _what_is_missing(case: Case, done: set[str]) -> str:
    if case.quantized_kv:
        return "the KV cache is quantized"
    left = sorted(case.needs - done)
    return f"it does not compute {', '.join(left)}, which the model uses" if left else ""


def _too_old(case: Case, wanted: tuple[int, int], what: str = "it") -> str:
    import torch

    found = torch.cuda.get_device_capability(case.device)
    if found >= wanted:
        return ""
    have, need = (".".join(map(str, version)) for version in (found, wanted))
    return f"{what} needs compute capability {need} and the GPU has {have}"


def _too_wide(case: Case, multiple: int = 1) -> str:
    if case.head_dim is None or (case.head_dim <= LARGEST_HEAD and case.head_dim % multiple == 0):
        return ""
    of = f"multiples of {multiple} " if multiple > 1 else ""
    return f"its head dimensions are {of}up to {LARGEST_HEAD}, and the model's is {case.head_dim}"


def _not_installed(package: str) -> str:
    return "" if find_spec(package) else f"{package} is not installed (pip install {package})"


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
