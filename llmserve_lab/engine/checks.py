"""Refusals of bad settings, one sentence each."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence, Set
from typing import Any

LARGEST_BIAS = 100.0  # as in OpenAI's API: enough to decide any choice


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


def require_flag(name: str, value: Any) -> None:
    """Raise unless `value` is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}.")


def require_strings(name: str, value: Any) -> tuple[str, ...]:
    """One string, several or None, as a tuple; raise unless each is a string with characters."""
    if value is not None and not isinstance(value, (str, Sequence)):
        raise TypeError(f"{name} must be a string or several, not {value!r}.")
    strings = (value,) if isinstance(value, str) else tuple(value or ())
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"{name} must be a string or several, not {string!r}.")
        if not string:
            raise ValueError(f"{name} must not hold an empty string: it would end every request.")
    return strings


def require_token_ids(name: str, ids: Any) -> tuple[int, ...]:
    """Token ids or None, as a tuple; raise unless each is a whole number of at least 0."""
    if isinstance(ids, str) or (ids is not None and not isinstance(ids, (Sequence, Set))):
        raise TypeError(f"{name} must be a list of token ids, not {ids!r}.")
    for token in ids or ():
        require_count(f"A token id of {name}", token, at_least=0)
    return tuple(int(token) for token in ids or ())


def require_bias(name: str, bias: Any) -> dict[int, float]:
    """A copy of `bias`; raise unless it maps token ids to numbers from -100 to 100."""
    if not isinstance(bias, Mapping):
        raise TypeError(f"{name} must map token ids to numbers, not {bias!r:.80}.")
    for token, value in bias.items():
        require_count(f"A token id of {name}", token, at_least=0)
        require_number(f"{name}[{token}]", value, -LARGEST_BIAS, LARGEST_BIAS)
    return {int(token): float(value) for token, value in bias.items()}
