"""Memory of zeros that costs nothing before it is written."""

from __future__ import annotations

from math import prod

import numpy as np
import torch

CACHE_LINE = 64  # bytes; a row that starts in the middle of one is read in two pieces


def zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor like `torch.zeros(size)`. On a CPU the operating system hands out its memory page
    by page, as each is first written, so a cache takes what it holds and not what it may hold.
    """
    if torch.device(device).type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    return _untouched(list(size), dtype)


# An operator of torch, so that whoever watches operators sees the memory being allocated.
@torch.library.custom_op("llmserve_lab::untouched_zeros", mutates_args=())
def _untouched(size: list[int], dtype: torch.dtype) -> torch.Tensor:
    num_bytes = prod(size) * dtype.itemsize
    room = np.zeros(num_bytes + CACHE_LINE, np.uint8)  # calloc: pages that are zero until written
    start = -room.ctypes.data % CACHE_LINE
    return torch.from_numpy(room[start : start + num_bytes]).view(dtype).view(size)
