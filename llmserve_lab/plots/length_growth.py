"""How the work of a whole answer grows with its length, with and without a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    DECODE,
    NEUTRAL,
    PREFILL,
    graph_objects,
    legend_below,
    template,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.length_sweep import LengthPoint

PLOT_PIXELS = 330
OPERATIONS, SECONDS = 1, 2  # the panels
KINDS = (("linear", "weights", "solid", "circle"), ("attention", "attention", "dash", "diamond"))


def length_growth(
    cached: Sequence[LengthPoint],
    uncached: Sequence[LengthPoint],
    title: str = "How does an answer's work grow with its length?",
) -> go.Figure:
    """Operations on the left and seconds on the right, on logarithmic axes; with each line the
    power of the length n that it follows.

    Raises:
        ValueError: fewer than two lengths, or others without the cache than with it.
    """
    lengths = [point.length for point in cached]
    if len(lengths) < 2 or lengths != [point.length for point in uncached]:
        raise ValueError("length_growth needs the same two lengths or more, with and without.")
    figure = _panels(title, lengths)
    told = []
    for points, name, mark in ((cached, "with", DECODE), (uncached, "without", PREFILL)):
        for field, kind, dash, symbol in KINDS:
            values = [getattr(point, field) for point in points]
            style = {"color": mark.colour, "dash": dash, "symbol": symbol}
            told.append(
                _add(figure, f"{kind}, {name} the cache", lengths, values, style, OPERATIONS)
            )
        style = {"color": mark.colour, "dash": "solid", "symbol": "circle"}
        seconds = [point.seconds for point in points]
        told.append(_add(figure, f"time {name} the cache", lengths, seconds, style, SECONDS))
    figure.update_layout(meta={"alt": f"{title} {'; '.join(told)}."})
    return figure


def _add(
    figure: go.Figure,
    name: str,
    lengths: list[int],
    values: list[float],
    style: dict[str, str],
    column: int,
) -> str:
    """A line with its power, in the legend or beside it; returns both in words."""
    from llmserve_lab.course.length_sweep import exponent

    power = exponent(lengths, values)
    label = f"n<sup>{power:.2f}</sup>"
    line = _line(name, lengths, values, style)
    if column == SECONDS:
        text = [""] * len(lengths)
        if name.split()[1] == "with":  # the lower line: below it, clear of the other one
            text[(len(lengths) - 1) // 2] = f"with: {label}"
            line.update(textposition="bottom right")
        else:
            text[-1] = f"without: {label}"
        line.update(mode="lines+markers+text", text=text, showlegend=False)
    else:
        line.update(name=f"{name}: {label}")
    figure.add_trace(line, row=1, col=column)
    return f"{name} grows with power {power:.2f} of the length"


def _line(name: str, lengths: list[int], values: list[float], style: dict[str, str]) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=lengths,
        y=values,
        mode="lines+markers",
        textposition="top left",
        textfont={"color": NEUTRAL, "size": 12},
        cliponaxis=False,
        line={"color": style["color"], "width": 2.5, "dash": style["dash"]},
        marker={"color": style["color"], "size": 8, "symbol": style["symbol"]},
        hovertemplate=f"{name}, %{{x}} tokens: %{{y:.3s}}<extra></extra>",
    )


def _panels(title: str, lengths: list[int]) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, column_widths=[0.56, 0.44], horizontal_spacing=0.14)
    height = PLOT_PIXELS + 170
    figure.update_layout(template=template(), title_text=title, height=height, autosize=True)
    legend_below(figure, PLOT_PIXELS)
    figure.update_xaxes(
        title_text="output tokens n", type="log", tickvals=lengths, minor={"ticks": ""},
        ticktext=[f"{length:,}" for length in lengths],
    )  # fmt: skip
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(title_text="operations (counted)", row=1, col=OPERATIONS)
    figure.update_yaxes(title_text="seconds (measured)", row=1, col=SECONDS)
    return figure
