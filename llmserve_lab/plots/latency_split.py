"""Latency by stage: a bar per request, from its arrival to its last token."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    DECODE,
    PREFILL,
    QUEUE,
    Mark,
    bar_style,
    graph_objects,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.metrics import RequestMetrics

ROW_PIXELS = 44
BASE_PIXELS = 190
WORTH_A_LABEL = 0.09  # of the longest bar


def latency_split(
    requests: Mapping[str, RequestMetrics],
    title: str = "What is each request's latency made of?",
) -> go.Figure:
    """Queue, prefill and decode of each request, in milliseconds; names become rows.

    Raises:
        ValueError: no requests, or one that has no token.
    """
    if not requests:
        raise ValueError("latency_split needs at least one request's metrics.")
    parts = {name: _parts(name, metrics) for name, metrics in requests.items()}
    longest = max(map(sum, parts.values()))
    figure = new_figure(title, BASE_PIXELS + ROW_PIXELS * len(parts))
    for place, mark in enumerate((QUEUE, PREFILL, DECODE)):
        values = {name: part[place] for name, part in parts.items()}
        if any(value / longest > 1e-3 for value in values.values()):
            figure.add_trace(stage_bars(mark, values, longest))
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    figure.update_xaxes(title_text="time since arrival (ms)", rangemode="tozero")
    figure.update_yaxes(title_text="request", type="category", autorange="reversed", showgrid=False)
    return figure


def stage_bars(mark: Mark, values: Mapping[str, float], longest: float, unit: str = "ms") -> Any:
    """One stage of every row, with its value written on bars that are long enough."""
    labels = [f"{v:.3g} {unit}" if v > WORTH_A_LABEL * longest else "" for v in values.values()]
    return graph_objects().Bar(
        name=mark.label,
        orientation="h",
        y=list(values),
        x=list(values.values()),
        text=labels,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": "#FFFFFF"},
        marker=bar_style(mark, under_text=True),
        hovertemplate=f"%{{y}}: {mark.label} %{{x:.4g}} {unit}<extra></extra>",
    )


def _parts(name: str, metrics: RequestMetrics) -> tuple[float, float, float]:
    """Milliseconds in the queue, in prefill (to the first token) and in decode."""
    if metrics.first_scheduled is None or not metrics.token_times:
        raise ValueError(f"Request {name!r} has no token, so its latency has no stages.")
    first, last = metrics.token_times[0], metrics.token_times[-1]
    moments = (metrics.arrival, metrics.first_scheduled, first, last)
    queue, prefill, decode = (1000 * (after - before) for before, after in pairwise(moments))
    return queue, prefill, decode
