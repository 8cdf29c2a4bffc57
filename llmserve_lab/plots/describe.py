"""A figure in words: the alternative text for those who do not see it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go

LISTED_POINTS = 8  # a trace with more is told by its range
LISTED_TRACES = 12


def describe(figure: go.Figure) -> str:
    """The title, then each visible trace with its axes, values and range.

    A picture whose values say little by themselves brings its own text, in `layout.meta["alt"]`.
    """
    if isinstance(figure.layout.meta, dict) and figure.layout.meta.get("alt"):
        return str(figure.layout.meta["alt"])
    parts = [plain(figure.layout.title.text) or "A figure."]
    lines = [line for trace in figure.data if (line := _trace_text(figure, trace))]
    parts += lines[:LISTED_TRACES]
    if len(lines) > LISTED_TRACES:
        parts.append(f"And {len(lines) - LISTED_TRACES} more series.")
    for slider in figure.layout.sliders or ():
        parts.append(f"A slider steps through {len(slider.steps)} moments.")
    for menu in figure.layout.updatemenus or ():
        parts.append("A menu chooses " + ", ".join(str(b.label) for b in menu.buttons) + ".")
    return " ".join(part if part[-1] in ".?!" else part + "." for part in parts)


def plain(text: str | None) -> str:
    """Without markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text or "")).strip()


def axis_of(figure: go.Figure, trace: Any, letter: str) -> Any:
    """The layout axis ("x" or "y") that a trace is drawn on, or None for a trace without axes."""
    if f"{letter}axis" not in trace:
        return None
    return figure.layout[f"{letter}axis" + (trace[f"{letter}axis"] or letter)[1:]]


def _trace_text(figure: go.Figure, trace: Any) -> str:
    if trace.visible in (False, "legendonly") or not _finite(_values(trace)):
        return ""
    across, up = ("y", "x") if trace["orientation"] == "h" else ("x", "y")
    name = plain(trace.name) or "Series"
    axes = f"{_title(figure, trace, up)} over {_title(figure, trace, across)}"
    return f"{name} ({axes}): {_points(list(trace[across] or ()), _values(trace))}"


def _title(figure: go.Figure, trace: Any, letter: str) -> str:
    axis = axis_of(figure, trace, letter)
    return plain(axis.title.text if axis is not None else "") or letter


def _values(trace: Any) -> list[Any]:
    if "x" not in trace or "y" not in trace:
        return []
    values = trace["x"] if trace["orientation"] == "h" else trace["y"]
    return list(values) if values is not None else []


def _points(places: list[Any], values: list[Any]) -> str:
    if len(values) <= LISTED_POINTS and len(places) == len(values):
        return ", ".join(f"{_short(v)} at {_short(p)}" for p, v in zip(places, values, strict=True))
    numbers = list(_finite(values))
    return f"{len(values)} values from {_short(min(numbers))} to {_short(max(numbers))}"


def _finite(values: Iterable[Any]) -> list[float]:
    return list(_numbers(values))


def _numbers(values: Iterable[Any]) -> Iterator[float]:
    for value in values:
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if math.isfinite(number):
            yield number


def _short(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return plain(str(value))
