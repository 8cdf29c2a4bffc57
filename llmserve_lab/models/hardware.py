"""Which device and which dtype a model runs with on this machine."""

from __future__ import annotations

import torch

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
