"""Inter-token gaps: how long a reader waits for each token after the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    MEASURED,
    NEUTRAL,
    OWNERS,
    graph_objects,
    legend_below,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

SYMBOLS = ("circle", "diamond", "square", "triangle-up")
BASE_PIXELS, LEGEND_ROW_PIXELS, PLOT_PIXELS = 340, 24, 220
COLOURS = (NEUTRAL, MEASURED.colour, OWNERS[1], OWNERS[3])


def token_gaps(
    streams: Mapping[str, Sequence[float]],
    title: str = "When did the stream stop for a moment?",
) -> go.Figure:
    """Milliseconds before each token, from the times (s) at which a stream's tokens came. A dashed
    line is the mean of all gaps of a stream: its TPOT.

    Raises:
        ValueError: no streams, more than four, or one with fewer than two tokens.
    """
    if not 1 <= len(streams) <= len(SYMBOLS):
        raise ValueError(f"token_gaps draws 1 to {len(SYMBOLS)} streams, not {len(streams)}.")
    figure = new_figure(title, BASE_PIXELS + LEGEND_ROW_PIXELS * len(streams))
    for place, (name, times) in enumerate(streams.items()):
        gaps = [1000 * (after - before) for before, after in pairwise(times)]
        if not gaps:
            raise ValueError(f"The stream {name!r} has no gap: it needs two tokens or more.")
        figure.add_trace(_points(name, gaps, place))
        figure.add_trace(_mean(name, gaps, place))
    figure.update_xaxes(title_text="output token", rangemode="tozero")
    figure.update_yaxes(title_text="wait for this token (ms)", rangemode="tozero")
    legend_below(figure, PLOT_PIXELS)
    return figure


def _points(name: str, gaps: list[float], place: int) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=list(range(2, len(gaps) + 2)),
        y=gaps,
        mode="lines+markers",
        line={"color": COLOURS[place], "width": 1.2},
        marker={"color": COLOURS[place], "size": 6, "symbol": SYMBOLS[place]},
        hovertemplate="token %{x}: %{y:.1f} ms<extra>" + name + "</extra>",
    )


def _mean(name: str, gaps: list[float], place: int) -> Any:
    mean = sum(gaps) / len(gaps)
    return graph_objects().Scatter(
        name=f"{name}: TPOT {mean:.1f} ms",
        x=[2, len(gaps) + 1],
        y=[mean, mean],
        mode="lines",
        line={"color": COLOURS[place], "width": 2, "dash": "dash" if place else "dot"},
        hovertemplate=f"{name}: TPOT {mean:.2f} ms<extra></extra>",
    )
