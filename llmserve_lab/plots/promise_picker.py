"""Tokens per second over the time per token; a slider moves the promise, and the best batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import (
    CALCULATED,
    MEASURED,
    NEUTRAL,
    SHARED,
    graph_objects,
    new_figure,
    or_nothing,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.batch_sweep import BatchPoint
    from llmserve_lab.course.step_cost import StepCost

HEADROOM = 1.15


def promise_picker(
    points: Sequence[BatchPoint],
    cost: StepCost,
    limits: Sequence[float],
    title: str = "Which batch does most and keeps the promise?",
) -> go.Figure:
    """A measured point for each batch size, the fitted cost as a line. The slider sets the longest
    time per token to each of `limits` (s) and rings the batch that does most within it.

    Raises:
        ValueError: no points, or no limits.
    """
    if not points or not limits:
        raise ValueError("promise_picker needs at least one point and one limit.")
    figure = new_figure(title, height=430)
    stepper = Stepper(figure)
    top = HEADROOM * max(point.tokens_per_second for point in points)
    stepper.always(_line(points, cost))
    stepper.always(_points(points))
    chosen = []
    for limit in limits:
        kept = [point for point in points if point.seconds <= limit]
        best = max(kept, key=lambda point: point.tokens_per_second, default=None)
        chosen.append(f"{1000 * limit:.3g} ms: {_told(best)}")
        stepper.stop(chosen[-1], [(_promise(limit, top), {}), (_best(best), {})])
    figure.update_layout(margin={"b": 118})
    figure.update_layout(meta={"alt": f"{title} Best at each limit: {'; '.join(chosen)}."})
    figure.update_xaxes(title_text="time per token of each request (ms)", rangemode="tozero")
    figure.update_yaxes(title_text="tokens/s, all requests", range=[0, top])
    return stepper.finish(start=len(limits) // 2, prefix="at most ")


def _told(best: BatchPoint | None) -> str:
    if best is None:
        return "no batch"
    return f"batch {best.batch_size}, {best.tokens_per_second:,.0f} tokens/s"


def _line(points: Sequence[BatchPoint], cost: StepCost) -> Any:
    sizes = range(points[0].batch_size, points[-1].batch_size + 1)
    return graph_objects().Scatter(
        name="every batch between, fitted",
        x=[1000 * cost.seconds(size) for size in sizes],
        y=[cost.tokens_per_second(size) for size in sizes],
        customdata=list(sizes),
        mode="lines",
        line={"color": CALCULATED.colour, "width": 2},
        hovertemplate="batch %{customdata}: %{y:.0f} tokens/s at %{x:.3g} ms<extra></extra>",
    )


def _points(points: Sequence[BatchPoint]) -> Any:
    return graph_objects().Scatter(
        name=f"{MEASURED.label}, with its batch size",
        x=[point.tpot_ms for point in points],
        y=[point.tokens_per_second for point in points],
        text=[str(point.batch_size) for point in points],
        textposition="bottom right",
        cliponaxis=False,
        mode="markers+text",
        marker={"color": MEASURED.colour, "size": 9},
        hovertemplate="batch %{text}: %{y:.0f} tokens/s at %{x:.3g} ms<extra></extra>",
    )


def _promise(limit: float, top: float) -> Any:
    return graph_objects().Scatter(
        name="the promise",
        x=[1000 * limit, 1000 * limit],
        y=[0, top],
        mode="lines",
        line={"color": NEUTRAL, "width": 2, "dash": "dash"},
        hovertemplate=f"at most {1000 * limit:.3g} ms<extra></extra>",
    )


def _best(point: BatchPoint | None) -> Any:
    name = f"best: batch {point.batch_size}" if point else "no batch keeps it"
    return graph_objects().Scatter(
        name=name,
        x=or_nothing([point.tpot_ms] if point else []),
        y=or_nothing([point.tokens_per_second] if point else []),
        mode="markers",
        marker={
            "symbol": "circle-open",
            "size": 19,
            "color": SHARED.colour,
            "line": {"width": 3, "color": SHARED.colour},
        },
        hovertemplate=f"{name}<extra></extra>",
    )
