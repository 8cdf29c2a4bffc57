"""Answers that are tensors: their kind, shape and dtype first, and only then their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.course.checks.result import describe

TOLERANCE = 1e-5  # absolute and relative: what float32 may be off after a few operations
DIGITS = 5  # of the values in messages


@dataclass(frozen=True, slots=True)
class Tensor:
    """A torch tensor of floats, of the reference's shape and dtype."""

    tolerance: float = TOLERANCE

    def compare(self, expected: Any, got: Any) -> str | None:
        import torch

        if type(got) is not torch.Tensor:
            return f"expected a tensor of shape {tuple(expected.shape)}, got {_named(got)}"
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return f"expected {_form(expected)}, got {_form(got)}"
        close = torch.isclose(got, expected, rtol=self.tolerance, atol=self.tolerance)
        if bool(close.all()):
            return None
        place = tuple((~close).nonzero()[0].tolist())
        want, have = (f"{float(t[place]):.{DIGITS}g}" for t in (expected, got))
        return f"expected {want} at [{', '.join(map(str, place))}], got {have}"


def _form(value: Any) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


def _named(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return describe(value) if shape is None else f"{type(value).__name__} of shape {shape}"
