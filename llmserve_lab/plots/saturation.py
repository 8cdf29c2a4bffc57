"""Throughput and waiting over the load that is offered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import CALCULATED, MEASURED, NEUTRAL, graph_objects, template

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.load_sweep import LoadPoint

PERCENT = 95
TICKS = "D2"  # plotly's name for 1, 2, 5, 10, 20, ... on a log axis


def saturation(
    simulated: Sequence[LoadPoint],
    measured: Sequence[LoadPoint],
    title: str = "What does more load buy, and what does it cost?",
) -> go.Figure:
    """Requests per second, and the 95th percentile of TTFT (log scale), over the offered load.

    Raises:
        ValueError: no points of either kind.
    """
    if not simulated or not measured:
        raise ValueError("saturation needs simulated and measured points, at least one of each.")
    figure = _panels(title)
    figure.add_trace(_offered(simulated), row=1, col=1)
    for column in (1, 2):
        figure.add_trace(_line(simulated, column), row=1, col=column)
        figure.add_trace(_points(measured, column), row=1, col=column)
    return figure


def _value(point: LoadPoint, column: int) -> float:
    if column == 1:
        return point.result.request_throughput
    return 1000 * point.result.percentile("ttft", PERCENT)


def _line(points: Sequence[LoadPoint], column: int) -> Any:
    return graph_objects().Scatter(
        name="simulated",
        legendgroup="simulated",
        showlegend=column == 1,
        x=[point.load for point in points],
        y=[_value(point, column) for point in points],
        mode="lines",
        line={"color": CALCULATED.colour, "width": 2.5},
        hovertemplate="load %{x:.2f}: %{y:.3g}<extra>simulated</extra>",
    )


def _points(points: Sequence[LoadPoint], column: int) -> Any:
    return graph_objects().Scatter(
        name=MEASURED.label,
        legendgroup="measured",
        showlegend=column == 1,
        x=[point.load for point in points],
        y=[_value(point, column) for point in points],
        mode="markers",
        marker={"color": MEASURED.colour, "size": 11, "symbol": "diamond"},
        hovertemplate="load %{x:.2f}: %{y:.3g}<extra>measured</extra>",
    )


def _offered(points: Sequence[LoadPoint]) -> Any:
    return graph_objects().Scatter(
        name="offered",
        x=[point.load for point in points],
        y=[point.offered for point in points],
        mode="lines",
        line={"color": NEUTRAL, "width": 1.5, "dash": "dot"},
        hovertemplate="offered: %{y:.3g} requests/s<extra></extra>",
    )


def _panels(title: str) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.13)
    figure.update_layout(template=template(), title_text=title, height=370, autosize=True)
    figure.update_xaxes(title_text="offered load (of its own capacity)", rangemode="tozero")
    figure.update_yaxes(title_text="done (requests/s)", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text=f"TTFT p{PERCENT} (ms, log)", type="log", row=1, col=2)
    figure.update_yaxes(dtick=TICKS, row=1, col=2)
    return figure
