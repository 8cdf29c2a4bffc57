"""Waits over the rate of arrivals, for several ways to batch: up to where each keeps a promise."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    CALCULATED,
    MEASURED,
    NEUTRAL,
    OWNERS,
    graph_objects,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

STYLES = (  # colour, marker, dash
    (NEUTRAL, "square", "dot"),
    (MEASURED.colour, "circle", "solid"),
    (OWNERS[1], "diamond", "dash"),
    (CALCULATED.colour, "triangle-up", "dashdot"),
)


def keeping_up(
    waits: Mapping[str, Mapping[float, float]],
    promise: float,
    title: str = "Up to which rate does each keep up? (simulated)",
) -> go.Figure:
    """waits: name -> requests/s -> seconds until the first token. promise: a line, in seconds.

    Raises:
        ValueError: no series, or more than four.
    """
    if not 1 <= len(waits) <= len(STYLES):
        raise ValueError(f"keeping_up draws 1 to {len(STYLES)} series, not {len(waits)}.")
    figure = new_figure(title)
    for (name, series), style in zip(waits.items(), STYLES, strict=False):
        figure.add_trace(_line(name, series, style))
    figure.add_hline(y=promise, line={"color": NEUTRAL, "width": 1.5, "dash": "longdash"})
    figure.add_annotation(
        x=0, xref="paper", xanchor="left", y=log10(promise), yanchor="bottom", showarrow=False,
        text=f"promise: {promise:g} s",
    )  # fmt: skip
    figure.update_xaxes(title_text="requests per second", rangemode="tozero")
    figure.update_yaxes(title_text="p95 until the first token (s)", type="log")
    figure.update_layout(showlegend=True)
    return figure


def _line(name: str, series: Mapping[float, float], style: tuple[str, str, str]) -> Any:
    colour, symbol, dash = style
    return graph_objects().Scatter(
        name=name,
        x=list(series),
        y=list(series.values()),
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": dash},
        marker={"color": colour, "size": 8, "symbol": symbol},
        hovertemplate="%{x:.1f} requests/s: %{y:.2f} s<extra>" + name + "</extra>",
    )
