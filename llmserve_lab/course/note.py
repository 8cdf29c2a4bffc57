"""A sentence or two that a cell shows as its result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class Note:
    text: str

    def __repr__(self) -> str:
        return self.text
