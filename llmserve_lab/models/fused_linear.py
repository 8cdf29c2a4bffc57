"""Linear layers that read the same input, computed as one matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from llmserve_lab.models import loops


class FusedLinear:
    """The outputs of `layers` side by side, from one product over their stacked weights.

    Nothing is held twice: the weights move into one tensor, and each layer's own parameters become
    views of it, with their names, shapes and values. Layers that are not all plain `nn.Linear` of
    one dtype and device, such as quantized ones, are called one by one.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = list(layers)
        self.weight: torch.Tensor | None = None
        self.bias: torch.Tensor | None = None
        if _stackable(self.layers):
            self.weight = stacked([layer.weight for layer in self.layers])
            if self.layers[0].bias is not None:
                self.bias = stacked([layer.bias for layer in self.layers])
        self._array = None if self.weight is None else loops.array_of(self.weight)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(tokens, features in) to (tokens, all features out)."""
        if self._array is not None and loops.few(inputs):
            return loops.product(inputs, self._array, self.bias)
        if self.weight is not None:
            return torch.nn.functional.linear(inputs, self.weight, self.bias)
        outputs = [layer(inputs) for layer in self.layers]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)


def stacked(parameters: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    """One tensor of all rows, of which the parameters are views from now on. Where they are
    already, as after another engine's call, it is found again and nothing moves."""
    with torch.inference_mode(False), torch.no_grad():
        first = parameters[0].detach()
        rows = sum(len(parameter) for parameter in parameters)
        if _adjacent(parameters):
            return first.as_strided((rows, *first.shape[1:]), first.stride())
        whole = torch.cat([parameter.detach() for parameter in parameters])
        for parameter, part in zip(
            parameters, whole.split(list(map(len, parameters))), strict=True
        ):
            parameter.data = part
        return whole


def _adjacent(parameters: Sequence[torch.nn.Parameter]) -> bool:
    """Whether each begins in the same storage where the one before it ends."""
    storages = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    return (
        len(storages) == 1
        and all(parameter.is_contiguous() for parameter in parameters)
        and all(a.data_ptr() + a.nbytes == b.data_ptr() for a, b in pairwise(parameters))
    )


def _stackable(layers: list[Any]) -> bool:
    if any(type(layer) is not torch.nn.Linear for layer in layers):
        return False
    kinds = {(layer.weight.dtype, layer.weight.device, layer.in_features) for layer in layers}
    biases = {layer.bias is None for layer in layers}
    whole = all(layer.weight.is_contiguous() for layer in layers)
    return whole and len(kinds) == len(biases) == 1
