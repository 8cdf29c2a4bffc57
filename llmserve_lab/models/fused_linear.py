"""Linear layers that read the same input, computed as one matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from llmserve_lab.models import loops
from llmserve_lab.models.int8_linear import Int8Linear, int8_linear
from llmserve_lab.models.packed_weight import PackedWeight


class FusedLinear:
    """The outputs of `layers` side by side, from one product over their stacked weights.

    Nothing is held twice, but for what `PackedWeight` holds: the weights move into one tensor, and
    each layer's own parameters become views of it, with their names, shapes and values. Layers that
    are not all `nn.Linear`, or all `Int8Linear`, of one dtype and device are called one by one, and
    so are layers that are split among processes.
    """

    weight: torch.Tensor | None = None
    scale: torch.Tensor | None = None  # of 8-bit weights
    bias: torch.Tensor | None = None
    packed: PackedWeight | None = None

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = list(layers)
        self._array = None
        if _stackable(self.layers):
            self.weight = stacked([layer.weight for layer in layers])
            self._array = loops.array_of(self.weight)
            for name in ("scale", "bias"):
                if getattr(layers[0], name, None) is not None:
                    setattr(self, name, stacked([getattr(layer, name) for layer in layers]))
            parameters = [layer.weight for layer in layers]
            self.packed = PackedWeight.where_faster(self.weight, parameters)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """(tokens, features in) to (tokens, all features out)."""
        if torch.compiler.is_compiling():
            return self._product(inputs)
        if self.packed is not None and self.packed.holds():
            return self.packed.product(inputs, self.bias)
        if self._array is not None and loops.few(inputs):
            return loops.product(inputs, self._array, self.bias)
        return self._product(inputs)

    def _product(self, inputs: torch.Tensor) -> torch.Tensor:
        """By operators that torch.compile knows."""
        if self.weight is not None and self.scale is not None:
            return int8_linear(inputs, self.weight, self.scale, self.bias)
        if self.weight is not None:
            return torch.nn.functional.linear(inputs, self.weight, self.bias)
        outputs = [layer(inputs) for layer in self.layers]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)


def is_split(module: Any) -> bool:
    """Whether transformers has split it among processes: its forward talks to the others."""
    return getattr(module, "_is_hooked", False)


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
    """Whether they are of one kind, so that they can be one layer."""
    if any(type(layer) not in (torch.nn.Linear, Int8Linear) or is_split(layer) for layer in layers):
        return False
    kinds = {
        (type(layer), layer.weight.dtype, layer.weight.device, layer.in_features,
         layer.bias is None)
        for layer in layers
    }  # fmt: skip
    return len(kinds) == 1 and all(layer.weight.is_contiguous() for layer in layers)
