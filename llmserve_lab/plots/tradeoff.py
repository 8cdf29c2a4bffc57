"""Three panels over batch size: what batching does to latency, throughput and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import GUESS, MEASURED, graph_objects, template

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class Panel:
    field: str
    heading: str
    axis: str
    digits: str  # a d3 format


PANELS = (
    Panel("latency", "latency", "latency (s)", ".3f"),
    Panel("throughput", "throughput", "throughput (requests/s)", ".2f"),
    Panel("kv_mib", "memory", "KV cache (MiB)", ".2f"),
)


def tradeoff_panels(
    rows: Sequence[Any],
    guess: Mapping[str, tuple[float, float]] | None = None,
    title: str = "What does a larger batch cost, and what does it buy?",
) -> go.Figure:
    """Latency, throughput and KV memory of the same requests at several batch sizes.

    Args:
        rows: one a batch size: objects or mappings with `batch_size`, `latency` (s),
            `throughput` (requests/s) and `kv_mib` (MiB).
        guess: the learner's, drawn hollow: panel field -> (batch size, value), such as
            `{"throughput": (32, 40.0)}`.

    Raises:
        ValueError: no rows, a row without one of the fields, or a guess for no such panel.
    """
    if not rows:
        raise ValueError("tradeoff_panels needs at least one row, measured at one batch size.")
    sizes = [_field(row, "batch_size") for row in rows]
    unknown = set(guess or ()) - {panel.field for panel in PANELS}
    if unknown:
        names = ", ".join(panel.field for panel in PANELS)
        raise ValueError(f"There is no panel {sorted(unknown)[0]!r}; guess one of {names}.")
    figure = _panels(title)
    for column, panel in enumerate(PANELS, start=1):
        values = [_field(row, panel.field) for row in rows]
        figure.add_trace(_measured(panel, sizes, values, column), row=1, col=column)
        if guess and panel.field in guess:
            figure.add_trace(_guess(panel, guess, column), row=1, col=column)
        figure.update_yaxes(title_text=panel.axis, rangemode="tozero", row=1, col=column)
    figure.update_xaxes(title_text="batch size", type="log", dtick=None, tickvals=sizes)
    figure.update_xaxes(ticktext=[f"{size:g}" for size in sizes], minor={"ticks": ""})
    return figure


def _field(row: Any, name: str) -> float:
    value = row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
    if value is None:
        raise ValueError(f"A row of tradeoff_panels has no {name!r}: {row!r}.")
    return float(value)


def _panels(title: str) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=len(PANELS), horizontal_spacing=0.11)
    figure.update_layout(template=template(), title_text=title, height=340, autosize=True)
    return figure


def _measured(panel: Panel, sizes: list[float], values: list[float], column: int) -> Any:
    return graph_objects().Scatter(
        name=MEASURED.label,
        legendgroup="measured",
        showlegend=column == 1,
        x=sizes,
        y=values,
        mode="lines+markers",
        line={"color": MEASURED.colour, "width": 2.5},
        marker={"color": MEASURED.colour, "size": 8},
        hovertemplate=f"batch %{{x}}: %{{y:{panel.digits}}}<extra>{panel.axis}</extra>",
    )


def _guess(panel: Panel, guess: Mapping[str, tuple[float, float]], column: int) -> Any:
    size, value = guess[panel.field]
    first = next(p.field for p in PANELS if p.field in guess)
    return graph_objects().Scatter(
        name=GUESS.label,
        legendgroup="guess",
        showlegend=panel.field == first,
        x=[size],
        y=[value],
        mode="markers",
        marker={
            "symbol": "diamond-open",
            "size": 13,
            "color": GUESS.colour,
            "line": {"width": 2.5, "color": GUESS.colour},
        },
        hovertemplate=f"your guess at batch %{{x}}: %{{y:{panel.digits}}}<extra></extra>",
    )
