"""The row of the hardware table for the machine that this runs on, measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llmserve_lab.machine import memory, processor_name
from llmserve_lab.simulate.gpus import PCIE_4, Gpu

if TYPE_CHECKING:
    import torch

GIB = 2**30
STREAM_BYTES = 2**28  # above the caches of most processors
COPIED_BYTES = 2**26
MATRIX = {"cpu": 1024, "cuda": 8192}  # rows, so that one product takes milliseconds
REPEATS = 7


def this_machine(dtype: Any = None) -> Gpu:
    """Memory, bandwidth and matrix rate of the GPU here, or else of the processor with torch's
    threads: the best of several repeats, in about two seconds. dtype: a torch dtype, else the one
    that `load` would choose."""
    import torch

    from llmserve_lab.models.hardware import pick_device, pick_dtype

    device = pick_device()
    chosen = pick_dtype(device)[0] if dtype is None else dtype
    return Gpu(
        "this machine",
        _memory_gib(device),
        _read_bandwidth(device),
        _matrix_rate(device, chosen),
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
    return COPIED_BYTES / _best(lambda: target.copy_(source), device)


def _read_bandwidth(device: torch.device) -> float:
    import torch

    values = torch.ones(STREAM_BYTES // 4, dtype=torch.float32, device=device)
    return STREAM_BYTES / _best(values.sum, device)


def _matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    import torch

    size = MATRIX[device.type]
    left = torch.ones(size, size, dtype=dtype, device=device)
    return 2 * size**3 / _best(lambda: left @ left, device)


def _best(work: Callable[[], Any], device: torch.device) -> float:
    """The shortest time of several runs, after one to warm up."""
    import torch

    wait: Callable[[], Any] = torch.cuda.synchronize if device.type == "cuda" else int
    times = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def _memory_gib(device: torch.device) -> float:
    import torch

    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1] / GIB
    return (memory()[0] or 0) / GIB


def _name(device: torch.device) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()
