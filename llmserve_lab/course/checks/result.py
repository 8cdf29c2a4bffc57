"""What an answer may return: the type first, and only then the value.

A shape's `compare(expected, got)` returns None where `got` is right, else what is wrong with it
as the end of a sentence. Types are compared exactly: a subclass can override `==`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

RELATIVE = 1e-9
ABSOLUTE = 1e-12
WHOLE_DIGITS, FLOAT_DIGITS = 15, 6  # shown in messages
SINGLE = 1e-5  # what a float32 may be off after a subtraction


class Shape(Protocol):
    def compare(self, expected: Any, got: Any) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number: a Python int or float, or a numpy scalar. Never a bool.

    `whole`: an int, not a float that happens to be one.
    """

    unit: str = ""
    relative: float = RELATIVE
    whole: bool = False

    def compare(self, expected: Any, got: Any) -> str | None:
        if not is_number(got):
            return f"expected a number such as {self._text(expected)}, got {describe(got)}"
        if self.whole and not isinstance(got, int | np.integer):
            return f"expected a whole number such as {expected}, got {describe(got)}"
        relative = max(self.relative, SINGLE) if isinstance(got, np.float32) else self.relative
        if math.isclose(_as_float(got), expected, rel_tol=relative, abs_tol=ABSOLUTE):
            return None
        return f"expected {self._text(expected)}, got {self._text(_as_float(got))}"

    def _text(self, value: float) -> str:
        digits = WHOLE_DIGITS if self.whole else FLOAT_DIGITS
        return f"{value:.{digits}g} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Maybe:
    """None where the reference says None, else a value of the inner shape."""

    inner: Shape

    def compare(self, expected: Any, got: Any) -> str | None:
        if expected is None:
            return None if got is None else f"expected None, got {describe(got)}"
        return self.inner.compare(expected, got)


@dataclass(frozen=True, slots=True)
class Record:
    """A dict with exactly these keys."""

    fields: dict[str, Shape] = field(default_factory=dict)

    def compare(self, expected: Any, got: Any) -> str | None:
        if type(got) is not dict:
            return f"expected a dict with {_listed(self.fields)}, got {describe(got)}"
        if not all(type(key) is str for key in got) or set(got) != set(self.fields):
            return f"expected the keys {_listed(self.fields)}, got {_listed(got)}"
        for name, shape in self.fields.items():
            if fault := shape.compare(expected[name], got[name]):
                return f'at ["{name}"] {fault}'
        return None


def is_number(value: Any) -> bool:
    """A plain or numpy number, of exactly such a type."""
    if type(value) in (int, float):
        return True
    is_numpy = isinstance(value, np.floating | np.integer)
    return is_numpy and type(value) is np.dtype(type(value)).type


def describe(value: Any) -> str:
    """A value with its type, whatever its `repr` does."""
    kind = type(value)
    if value is None:
        return "None (is there a return?)"
    if kind in (int, float, bool, str, list, tuple, dict):
        return f"the {kind.__name__} {shorten(value)}"
    if kind.__module__ == "torch":
        return f"a torch {kind.__name__} (use .item())"
    return f"an object of type {kind.__module__}.{kind.__qualname__}"


def shorten(value: Any, limit: int = 120) -> str:
    """The value's `repr` on one line, with its middle cut out where it is long."""
    text = " ".join(map(str.strip, repr(value).splitlines()))  # an array's has several
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} ... {text[-half:]}"


def same(before: Any, after: Any) -> bool:
    """Whether two inputs are equal in type and value throughout (NaN equals NaN)."""
    if type(before) is not type(after):
        return False
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(same, before, after))
    if isinstance(before, dict):
        return list(before) == list(after) and all(same(v, after[k]) for k, v in before.items())
    if hasattr(before, "shape"):  # an array or a tensor
        if before.shape != after.shape:
            return False
        equal = (before == after) | ((before != before) & (after != after))
        return bool(equal.all())
    return bool(before == after) or (before != before and after != after)


def mutable_parts(value: Any) -> set[int]:
    """The identities of the lists, dicts, arrays and tensors in a value."""
    if isinstance(value, dict):
        return {id(value)}.union(*map(mutable_parts, value.values()))
    if isinstance(value, list | tuple):
        own = {id(value)} if isinstance(value, list) else set()
        return own.union(*map(mutable_parts, value))
    return {id(value)} if hasattr(value, "shape") and not is_number(value) else set()


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"
