"""Memory as stacked bars: weights, KV cache and activation, side by side for several cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    ACTIVATION,
    KV_CACHE,
    NEUTRAL,
    WEIGHTS,
    Mark,
    bar_style,
    graph_objects,
    legend_below,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

PARTS = {"weights": WEIGHTS, "kv": KV_CACHE, "activation": ACTIVATION}
BASE_PIXELS, ROW_PIXELS = 200, 46
MIB, GIB = 2**20, 2**30


def memory_bars(
    rows: Mapping[str, Mapping[str, float]],
    title: str = "What fills the memory?",
    capacity: float | None = None,
) -> go.Figure:
    """A bar per row, stacked from its parts.

    Args:
        rows: label -> bytes of `weights`, `kv` and `activation`.
        capacity: bytes that there are, drawn as a line through each row.

    Raises:
        ValueError: no rows, or a row without one of the parts.
    """
    if not rows:
        raise ValueError("memory_bars needs at least one row of weights, kv and activation.")
    for label, parts in rows.items():
        missing = [name for name in PARTS if name not in parts]
        if missing:
            raise ValueError(f"The row {label!r} of memory_bars has no {missing[0]!r}.")
    most = max([sum(parts[name] for name in PARTS) for parts in rows.values()] + [capacity or 0])
    unit, name = (GIB, "GiB") if most >= GIB else (MIB, "MiB")
    figure = new_figure(title, BASE_PIXELS + ROW_PIXELS * len(rows))
    for part, mark in PARTS.items():
        figure.add_trace(_bars(mark, rows, part, unit, name))
    if capacity is not None:
        figure.add_trace(_capacity(list(rows), capacity / unit, name))
    figure.update_layout(barmode="stack", showlegend=True, legend_traceorder="normal")
    legend_below(figure, ROW_PIXELS * len(rows))
    figure.update_xaxes(title_text=f"memory ({name})", rangemode="tozero")
    figure.update_yaxes(
        title_text="case", type="category", categoryarray=list(rows)[::-1], showgrid=False
    )
    return figure


def _bars(
    mark: Mark, rows: Mapping[str, Mapping[str, float]], part: str, unit: int, name: str
) -> Any:
    return graph_objects().Bar(
        name=mark.label,
        orientation="h",
        y=list(rows),
        x=[parts[part] / unit for parts in rows.values()],
        marker=bar_style(mark),
        hovertemplate=f"%{{y}}: {mark.label} %{{x:.3g}} {name}<extra></extra>",
    )


def _capacity(labels: Sequence[str], capacity: float, name: str) -> Any:
    return graph_objects().Scatter(
        name=f"there is {capacity:.3g} {name}",
        x=[capacity] * len(labels),
        y=list(labels),
        mode="markers",
        marker={"symbol": "line-ns", "size": 15, "line": {"color": NEUTRAL, "width": 3}},
        hovertemplate=f"capacity {capacity:.3g} {name}<extra></extra>",
    )
