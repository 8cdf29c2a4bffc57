"""Answers that are lists of token ids."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.checks.result import describe


class Tokens:
    """A list of plain ints, equal to the reference's."""

    def compare(self, expected: Any, got: Any) -> str | None:
        if type(got) is not list or not all(type(token) is int for token in got):
            return f"expected a list of ints such as {expected}, got {describe(got)}"
        return None if got == expected else f"expected {expected}, got {got}"
