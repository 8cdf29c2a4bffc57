"""Refusals of bad settings, one sentence each."""

from __future__ import annotations

import math
import numbers
from typing import Any


def require_count(name: str, value: Any, at_least: int, at_most: int | None = None) -> None:
    """Raise unless `value` is an integer (not a bool) in range."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, not {value!r}.")
    if int(value) < at_least:
        raise ValueError(f"{name} must be at least {at_least}, not {value}.")
    if at_most is not None and int(value) > at_most:
        raise ValueError(f"{name} must be at most {at_most}, not {value}.")


def require_number(name: str, value: Any, low: float, high: float) -> None:
    """Raise unless `value` is a finite number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {value!r}.")
    number = float(value)
    if not math.isfinite(number) or not low <= number <= high:
        limit = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of at least {low:g}"
        raise ValueError(f"{name} must be a finite number {limit}, not {value}.")
