"""A weight in the layout that oneDNN multiplies by, made once and not anew in every product."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import torch

from llmserve_lab.machine import memory

SHARE = 0.25  # of the memory that is free: the most that one packed copy takes


class PackedWeight:
    """A copy of a bf16 weight, for CPUs that multiply bf16: a product over a few rows takes a half
    to a third of the time. It takes the weight's memory once more.

    parameters: what the weight consists of. A copy does not follow them: `holds` says whether none
    has been changed in place since (a change through `.data` cannot be seen).
    """

    def __init__(self, weight: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = list(parameters)
        self._versions = self._read_versions()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight)

    @classmethod
    def where_faster(
        cls, weight: torch.Tensor, parameters: Sequence[torch.Tensor]
    ) -> PackedWeight | None:
        """weight: (out, in). None where a product with the weight as it is will do."""
        tracked = not any(parameter.is_inference() for parameter in parameters)
        kind = (weight.device.type, weight.dtype)
        if kind != ("cpu", torch.bfloat16) or not tracked or not multiplies_bf16():
            return None
        available = memory()[1]
        fits = available is not None and weight.nbytes < SHARE * available
        return cls(weight, parameters) if fits else None

    def holds(self) -> bool:
        """Whether the parameters are still what was packed."""
        return self._read_versions() == self._versions

    def product(self, inputs: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """(rows, in) to (rows, out), bf16."""
        return torch.ops.mkldnn._linear_pointwise(inputs, self._packed, bias, "none", [], "")

    def _read_versions(self) -> list[int]:
        return list(map(attrgetter("_version"), self._parameters))


def multiplies_bf16() -> bool:
    """Whether this processor has instructions for bf16 that oneDNN uses, and torch a oneDNN."""
    onednn = torch.ops.mkldnn
    wanted = ("_is_mkldnn_bf16_supported", "_reorder_linear_weight", "_linear_pointwise")
    return (
        torch.backends.mkldnn.is_available()
        and all(hasattr(onednn, name) for name in wanted)
        and onednn._is_mkldnn_bf16_supported()
    )
