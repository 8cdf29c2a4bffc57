"""How fast this machine can read memory and multiply matrices: what a model is measured against."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MATRIX_BYTES = {"cpu": 2**27, "cuda": 2**29}  # read once by a matrix-vector product
MATRIX_SIZE = {"cpu": 1024, "cuda": 8192}  # rows and columns of a matrix product
BUDGET = 0.15  # seconds for each of the two
FEWEST_RUNS = 3


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that was measured. A model whose weights fit into a processor's cache may read them
    faster than memory gives them."""

    bytes_per_second: float
    flops_per_second: float


def measure_peak(
    device: Any = None,
    dtype: Any = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Peak:
    """Time a matrix-vector product, which reads a large matrix once as decoding does, and a matrix
    product; the best of several runs of each, in a few hundred milliseconds. Close other programs.

    device, dtype: of torch, else those that `load` would choose. Uses torch's threads.
    """
    import torch

    from llmserve_lab.models.hardware import pick_device, pick_dtype

    place = pick_device() if device is None else torch.device(device)
    kind = pick_dtype(place)[0] if dtype is None else dtype
    with torch.inference_mode():
        reading = best_rate(*_reading(place, kind), place, clock)
        computing = best_rate(*_multiplying(place, kind), place, clock)
    return Peak(reading, computing)


def _reading(device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], Any], int]:
    """A matrix-vector product, and the bytes that it reads."""
    import torch

    columns = 4096
    rows = MATRIX_BYTES[device.type] // (columns * dtype.itemsize)
    matrix = torch.ones(rows, columns, dtype=dtype, device=device)
    vector = torch.ones(columns, dtype=dtype, device=device)
    return lambda: matrix @ vector, matrix.nbytes


def _multiplying(device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], Any], int]:
    """A matrix product, and its floating-point operations."""
    import torch

    size = MATRIX_SIZE[device.type]
    left = torch.ones(size, size, dtype=dtype, device=device)
    return lambda: left @ left, 2 * size**3


def best_rate(
    run: Callable[[], Any],
    amount: int,
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The most per second of several runs, after one that warms up."""
    times: list[float] = []
    _seconds(run, device, clock)
    while len(times) < FEWEST_RUNS or sum(times) < BUDGET:
        times.append(_seconds(run, device, clock))
    return amount / min(times)


def _seconds(run: Callable[[], Any], device: torch.device, clock: Callable[[], float]) -> float:
    import torch

    began = clock()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - began
