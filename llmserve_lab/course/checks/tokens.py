"""Answers that are token ids: one list, or a list of lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.course.checks.result import describe


@dataclass(frozen=True, slots=True)
class Tokens:
    """A list of ints. noun: what they are."""

    noun: str = "tokens"

    def compare(self, expected: Any, got: Any) -> str | None:
        if type(got) is not list or any(type(token) is not int for token in got):
            return f"expected a list of ints such as {expected}, got {describe(got)}"
        if len(got) != len(expected):
            return f"expected {len(expected)} {self.noun}, got {len(got)}"
        return None if got == expected else f"expected {expected}, got {got}"


@dataclass(frozen=True, slots=True)
class Rows:
    """A list of lists of ints."""

    def compare(self, expected: Any, got: Any) -> str | None:
        if type(got) is not list or any(type(row) is not list for row in got):
            return f"expected a list with a list of token ids a row, got {describe(got)}"
        if len(got) != len(expected):
            return f"expected {len(expected)} rows, got {len(got)}"
        for place, (want, row) in enumerate(zip(expected, got, strict=True)):
            if fault := Tokens().compare(want, row):
                return f"in row {place} {fault}"
        return None
