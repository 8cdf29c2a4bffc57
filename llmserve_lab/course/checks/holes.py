"""Answers that are lists of free runs: (start, length) pairs of ints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.course.checks.result import describe


@dataclass(frozen=True, slots=True)
class Holes:
    """Exactly these runs, in this order."""

    def compare(self, expected: Any, got: Any) -> str | None:
        if type(got) is not list or not all(map(_is_hole, got)):
            return (
                f"expected a list of (start, length) pairs such as {expected}, got {describe(got)}"
            )
        return None if got == expected else f"expected {expected}, got {got}"


def _is_hole(value: Any) -> bool:
    return type(value) is tuple and [type(part) for part in value] == [int, int]
