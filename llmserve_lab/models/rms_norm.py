"""Root mean square normalisation (Zhang and Sennrich 2019)."""

from __future__ import annotations

from typing import Any

import torch

from llmserve_lab.models import loops


class RMSNorm:
    """Over the last dimension, with the weight and epsilon of transformers' module."""

    def __init__(self, module: Any) -> None:
        self.weight, self.epsilon = module.weight, module.variance_epsilon
        self._array = loops.array_of(self.weight)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(..., features) to the same."""
        if torch.compiler.is_compiling() or self._array is None or not inputs.is_contiguous():
            shape = self.weight.shape
            return torch.nn.functional.rms_norm(inputs, shape, self.weight, self.epsilon)
        return loops.rms_norm(inputs, self._array, self.epsilon)
