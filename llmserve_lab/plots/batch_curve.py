"""Tokens per second and time per token over the batch size, with the two-part step cost."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import CALCULATED, MEASURED, NEUTRAL, graph_objects, template

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.batch_sweep import BatchPoint
    from llmserve_lab.course.step_cost import StepCost

HEADROOM = 1.18
STOPS = 40  # of a calculated line


def batch_curve(
    points: Sequence[BatchPoint],
    cost: StepCost,
    title: str = "Where does doubling the batch stop paying?",
) -> go.Figure:
    """Measured points in two panels over the batch size, the fitted cost as a line through them,
    and the knee, where both parts of a step are equal, if it lies within the sizes.

    Raises:
        ValueError: fewer than two points.
    """
    if len(points) < 2:
        raise ValueError("batch_curve needs points at two batch sizes or more.")
    figure = _panels(title, sizes := [point.batch_size for point in points])
    fine = [sizes[0] * (sizes[-1] / sizes[0]) ** (i / (STOPS - 1)) for i in range(STOPS)]
    panels = (
        ([p.tokens_per_second for p in points], [cost.tokens_per_second(b) for b in fine]),
        ([p.tpot_ms for p in points], [1000 * cost.seconds(b) for b in fine]),
    )
    for column, (measured, calculated) in enumerate(panels, start=1):
        top = HEADROOM * max(measured)
        figure.add_trace(_line(fine, calculated, column), row=1, col=column)
        figure.add_trace(_points(sizes, measured, column), row=1, col=column)
        if sizes[0] < cost.knee < sizes[-1]:
            figure.add_trace(_knee(cost.knee, top, column), row=1, col=column)
        figure.update_yaxes(range=[0, top], row=1, col=column)
    if isfinite(cost.most) and cost.most < HEADROOM * max(panels[0][0]):
        figure.add_trace(_ceiling(sizes, cost.most), row=1, col=1)
    return figure


def _panels(title: str, sizes: list[int]) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.13)
    figure.update_layout(template=template(), title_text=title, height=390, autosize=True)
    figure.update_layout(margin={"t": 104})
    figure.update_xaxes(
        title_text="batch size", type="log", tickvals=sizes, tickangle=0,
        ticktext=[str(size) for size in sizes], minor={"ticks": ""},
    )  # fmt: skip
    figure.update_yaxes(title_text="tokens/s, all requests", row=1, col=1)
    figure.update_yaxes(title_text="time per token of each (ms)", row=1, col=2)
    return figure


def _line(sizes: list[float], values: list[float], column: int) -> Any:
    return graph_objects().Scatter(
        name="fixed + each \u00d7 batch, fitted",
        legendgroup="fit",
        showlegend=column == 1,
        x=sizes,
        y=values,
        mode="lines",
        line={"color": CALCULATED.colour, "width": 2},
        hovertemplate="batch %{x:.0f}: %{y:.4g}<extra>fitted</extra>",
    )


def _points(sizes: list[int], values: list[float], column: int) -> Any:
    return graph_objects().Scatter(
        name=MEASURED.label,
        legendgroup="measured",
        showlegend=column == 1,
        x=sizes,
        y=values,
        mode="markers",
        marker={"color": MEASURED.colour, "size": 9},
        hovertemplate="batch %{x}: %{y:.4g}<extra>measured</extra>",
    )


def _knee(knee: float, top: float, column: int) -> Any:
    return graph_objects().Scatter(
        name=f"knee, both parts equal: {knee:.1f}",
        legendgroup="knee",
        showlegend=column == 1,
        x=[knee, knee],
        y=[0, top],
        mode="lines",
        line={"color": NEUTRAL, "width": 2, "dash": "dash"},
        hovertemplate=f"knee at {knee:.1f}<extra></extra>",
    )


def _ceiling(sizes: list[int], most: float) -> Any:
    return graph_objects().Scatter(
        name=f"no batch reaches {most:,.0f}",
        x=[sizes[0], sizes[-1]],
        y=[most, most],
        mode="lines",
        line={"color": NEUTRAL, "width": 2, "dash": "dot"},
        hovertemplate=f"1 / each = {most:,.0f} tokens/s<extra></extra>",
    )
