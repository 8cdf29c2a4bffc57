"""Numbers on their way to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def upload(values: list | torch.Tensor, device: torch.device) -> torch.Tensor:
    """int64, of any shape. From memory that stays where it is, so that nobody waits for the copy:
    torch waits for all that the GPU was asked to do where it copies from any other."""
    import torch

    pinned = device.type == "cuda" and not isinstance(values, torch.Tensor)
    known = torch.as_tensor(values, dtype=torch.int64)
    return (known.pin_memory() if pinned else known).to(device, non_blocking=True)
