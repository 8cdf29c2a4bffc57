"""Which device and which dtype a model runs with on this machine."""

from __future__ import annotations

import os

import torch

from llmserve_lab.machine import usable_cores

# With these the user decides how many threads compute.
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

# Compute capability from which tensor cores multiply bf16 (Ampere). Older GPUs such as the T4
# (7.5) only emulate it, and `torch.cuda.is_bf16_supported()` counts that as support.
BF16_CAPABILITY = (8, 0)


def pick_device() -> torch.device:
    """The current CUDA GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pick_dtype(device: torch.device) -> tuple[torch.dtype, str]:
    """The dtype to compute in on a device, and the reason in a few words."""
    if device.type != "cuda":
        return torch.float32, "every CPU computes fp32 natively, few are faster in 16 bits"
    capability = torch.cuda.get_device_capability(device)
    version = ".".join(map(str, capability))
    if capability >= BF16_CAPABILITY:
        return torch.bfloat16, f"compute capability {version} computes bf16 natively"
    return torch.float16, f"compute capability {version} is below 8.0, where bf16 starts"


def fit_threads() -> None:
    """Have torch compute with no more threads than cores are left to this process: it counts those
    of the machine, also in a container that may use two of 64. A smaller number, and one set in
    `THREAD_SETTINGS`, stays."""
    cores = usable_cores()
    asked = any(os.environ.get(name) for name in THREAD_SETTINGS)
    if not asked and torch.get_num_threads() > cores:
        torch.set_num_threads(cores)
