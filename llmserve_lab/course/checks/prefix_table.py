"""Answers that are a prefix cache's table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.course.checks.result import describe, shorten
from llmserve_lab.course.own_prefix import Entry


@dataclass(frozen=True, slots=True)
class PrefixTable:
    """A dict of key to `Entry`."""

    def compare(self, expected: Any, got: Any) -> str | None:
        if type(got) is not dict or any(type(key) is not int for key in got):
            return f"expected a dict with keys of h, got {describe(got)}"
        for key, entry in got.items():
            if fault := _fault(entry):
                return f"under key {key} {fault}"
        if got.keys() != expected.keys():
            return f"expected the keys {_keys(expected)}, got {_keys(got)}"
        for key, entry in expected.items():
            if got[key] != entry:
                return f"under key {key} expected {shorten(entry)}, got {shorten(got[key])}"
        return None


def _fault(entry: Any) -> str | None:
    """What keeps it from being an entry, type first."""
    if type(entry) is not Entry:
        return f"expected an Entry(block, salt, tokens), got {describe(entry)}"
    if type(entry.block) is not int or type(entry.salt) is not str:
        return f"expected a block number and a salt, got {shorten((entry.block, entry.salt))}"
    if type(entry.tokens) is not tuple or any(type(token) is not int for token in entry.tokens):
        return f"expected a tuple of token ids, got {describe(entry.tokens)}"
    return None


def _keys(table: Any) -> str:
    return shorten(sorted(table))
