"""The row of the hardware table for the machine that this runs on, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.peak import best_rate, measure_peak
from llmserve_lab.machine import memory, processor_name
from llmserve_lab.simulate.gpus import PCIE_4, Gpu

if TYPE_CHECKING:
    import torch

GIB = 2**30
COPIED_BYTES = 2**26


def this_machine(dtype: Any = None) -> Gpu:
    """Memory, bandwidth and matrix rate of the GPU here, or else of the processor with torch's
    threads, as `measure_peak` finds them. dtype: a torch dtype, else the one that `load` would
    choose."""
    import torch

    from llmserve_lab.models.hardware import pick_device, pick_dtype

    device = pick_device()
    chosen = pick_dtype(device)[0] if dtype is None else dtype
    peak = measure_peak(device, chosen)
    return Gpu(
        "this machine",
        _memory_gib(device),
        peak.bytes_per_second,
        peak.flops_per_second,
        f"measured here: {_name(device)}, {str(chosen).removeprefix('torch.')}, "
        f"{torch.get_num_threads()} threads",
        PCIE_4,
        copy_bandwidth(device),
    )


def copy_bandwidth(device: torch.device) -> float:
    """Bytes/s from the device's memory to the host's."""
    import torch

    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cpu")
    return best_rate(lambda: target.copy_(source), COPIED_BYTES, device)


def _memory_gib(device: torch.device) -> float:
    import torch

    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1] / GIB
    return (memory()[0] or 0) / GIB


def _name(device: torch.device) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
