"""Answers that are a name out of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.course.checks.result import describe


@dataclass(frozen=True, slots=True)
class Name:
    """A string, letter by letter."""

    def compare(self, expected: Any, got: Any) -> str | None:
        if type(got) is not str:
            return f"expected a name such as {expected!r}, got {describe(got)}"
        return None if got == expected else f"expected {expected!r}, got {got!r}"
