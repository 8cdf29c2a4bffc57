"""Which code computes attention: chosen by hardware, or by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Attention = Callable[..., "torch.Tensor"]  # the signature of reference.paged_attention
AUTO = "auto"
BACKENDS = ("reference", "cpu")
CPU_FEATURES = frozenset({"window", "softcap"})


def attention_backend(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    quantized_kv: bool = False,
    needs: frozenset[str] = frozenset(),
) -> Attention:
    """The attention function called `name`, ready to run; "auto" takes the fastest that works here.

    "reference": plain torch, any device and dtype, and a quantized KV cache. "cpu": a Numba kernel,
    float32 on a CPU. needs: what the model's attention asks for, see `options.FEATURES`.

    Raises:
        ValueError: no such backend, or one that does not work on this device, dtype, cache and
            model.
    """
    why_not = "the KV cache is quantized" if quantized_kv else why_not_cpu(device, dtype, needs)
    if name == AUTO:
        name = "reference" if why_not else "cpu"
    if name not in BACKENDS:
        raise ValueError(
            f"There is no attention backend {name!r}; use {AUTO!r} or one of {', '.join(BACKENDS)}."
        )
    if name == "cpu" and why_not:
        raise ValueError(f"The cpu attention backend does not work here: {why_not}.")
    module = import_module(f"llmserve_lab.attention.{name}")
    module.prepare()
    return module.paged_attention


def why_not_cpu(
    device: torch.device, dtype: torch.dtype, needs: frozenset[str] = frozenset()
) -> str:
    """What keeps the cpu backend from working; empty where nothing does."""
    import torch

    if device.type != "cpu":
        return f"the model is on {device.type}"
    if dtype != torch.float32:
        return f"it computes in float32 and the model is in {dtype}"
    if needs - CPU_FEATURES:
        return f"it does not compute {', '.join(sorted(needs - CPU_FEATURES))}"
    return "" if find_spec("numba") else "numba is not installed (pip install numba)"
