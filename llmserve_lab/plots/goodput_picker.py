"""Throughput and goodput over the load; a slider moves the promise about the first token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import CALCULATED, NEUTRAL, SHARED, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.load_sweep import LoadPoint
    from llmserve_lab.simulate.slo import SLO


def goodput_picker(
    points: Sequence[LoadPoint],
    slo: SLO,
    limits: Sequence[float],
    title: str = "At which load are most promises kept?",
) -> go.Figure:
    """Requests per second that are done, and that are done in time, over the offered load. The
    slider sets `slo.ttft` to each of `limits` (s) and marks the load with the highest goodput.

    Raises:
        ValueError: no points, or no limits.
    """
    if not points or not limits:
        raise ValueError("goodput_picker needs at least one point and one limit.")
    figure = new_figure(f"{title} (simulated)", height=420)
    stepper = Stepper(figure)
    stepper.always(_throughput(points))
    highest = max(point.result.request_throughput for point in points)
    best = []
    for limit in limits:
        chosen = replace(slo, ttft=limit)
        good = [point.result.goodput(chosen) for point in points]
        top = max(range(len(good)), key=good.__getitem__)
        best.append(f"{1000 * limit:.0f} ms: load {points[top].load:.2f}")
        label = f"{1000 * limit:.0f} ms: best load {points[top].load:.2f}, {good[top]:.3g} good/s"
        traces = [_goodput(points, good), _best(points[top].load, highest)]
        stepper.stop(label, [(trace, {}) for trace in traces])
    figure.update_layout(margin={"b": 118})
    figure.update_layout(meta={"alt": f"{title} Best load for each limit: {'; '.join(best)}."})
    figure.update_xaxes(title_text="offered load (of capacity)", rangemode="tozero")
    figure.update_yaxes(title_text="requests/s", range=[0, highest * 1.12])
    stepper.finish(start=len(limits) // 2)
    figure.layout.sliders[0].currentvalue.prefix = "TTFT at most "
    return figure


def _throughput(points: Sequence[LoadPoint]) -> Any:
    return graph_objects().Scatter(
        name="throughput: done",
        x=[point.load for point in points],
        y=[point.result.request_throughput for point in points],
        mode="lines",
        line={"color": CALCULATED.colour, "width": 2.5},
        hovertemplate="load %{x:.2f}: %{y:.3g} requests/s done<extra></extra>",
    )


def _goodput(points: Sequence[LoadPoint], good: list[float]) -> Any:
    return graph_objects().Scatter(
        name="goodput: done in time",
        x=[point.load for point in points],
        y=good,
        mode="lines+markers",
        line={"color": SHARED.colour, "width": 2.5, "dash": "dash"},
        marker={"color": SHARED.colour, "size": 6},
        hovertemplate="load %{x:.2f}: %{y:.3g} requests/s in time<extra></extra>",
    )


def _best(load: float, height: float) -> Any:
    return graph_objects().Scatter(
        name=f"best load {load:.2f}",
        x=[load, load],
        y=[0, height * 1.1],
        mode="lines",
        line={"color": NEUTRAL, "width": 2, "dash": "dot"},
        hovertemplate=f"best load {load:.2f}<extra></extra>",
    )
