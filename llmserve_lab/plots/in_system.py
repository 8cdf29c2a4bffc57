"""Little's law as a picture: the same area, once by requests and once by moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    DECODE,
    MEASURED,
    NEUTRAL,
    QUEUE,
    Mark,
    bar_style,
    graph_objects,
    or_nothing,
    template,
    translucent,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.metrics import RequestMetrics

SERVED = Mark(DECODE.colour, DECODE.pattern, "being served")


def in_system(
    requests: Sequence[RequestMetrics],
    title: str = "How many requests are in the system at a time?",
) -> go.Figure:
    """Above a bar per request, from its arrival to its last token; below how many bars there are at
    each moment, and the mean. Both areas are the same.

    Raises:
        ValueError: no requests, or one without a token.
    """
    if not requests or any(not metrics.token_times for metrics in requests):
        raise ValueError("in_system needs at least one request, and all must have a token.")
    rows = sorted(requests, key=lambda metrics: metrics.arrival)
    origin = rows[0].arrival
    figure = _panels(title, len(rows))
    figure.add_trace(_bars(QUEUE, [_waited(m, origin) for m in rows]), row=1, col=1)
    figure.add_trace(_bars(SERVED, [_served(m, origin) for m in rows]), row=1, col=1)
    times, counts = number_in_system(rows)
    figure.add_trace(_curve([time - origin for time in times], counts), row=2, col=1)
    area = sum(m.token_times[-1] - m.arrival for m in rows)
    mean = area / (times[-1] - times[0])
    figure.add_trace(_mean(mean, times[-1] - origin), row=2, col=1)
    alt = f"{title} {len(rows)} requests; at most {max(counts)} at a time, {mean:.2f} on average."
    figure.update_layout(meta={"alt": alt})
    return figure


def number_in_system(requests: Sequence[RequestMetrics]) -> tuple[list[float], list[int]]:
    """The times at which a request came or went, and how many there are from then on."""
    changes = [(m.arrival, 1) for m in requests] + [(m.token_times[-1], -1) for m in requests]
    times, counts, inside = [], [], 0
    for time, change in sorted(changes):
        inside += change
        times.append(time)
        counts.append(inside)
    return times, counts


def _waited(metrics: RequestMetrics, origin: float) -> tuple[float, float]:
    started = metrics.arrival if metrics.first_scheduled is None else metrics.first_scheduled
    return metrics.arrival - origin, started - metrics.arrival


def _served(metrics: RequestMetrics, origin: float) -> tuple[float, float]:
    start, waited = _waited(metrics, origin)
    return start + waited, metrics.token_times[-1] - metrics.arrival - waited


def _bars(mark: Mark, spans: list[tuple[float, float]]) -> Any:
    shown = [(row, start, length) for row, (start, length) in enumerate(spans) if length > 0]
    return graph_objects().Bar(
        name=mark.label,
        orientation="h",
        y=or_nothing([row for row, _, _ in shown]),
        base=[start for _, start, _ in shown],
        x=or_nothing([length for _, _, length in shown]),
        width=0.8,
        marker=bar_style(mark),
        hovertemplate=f"request %{{y}}: {mark.label} for %{{x:.3f}} s<extra></extra>",
    )


def _curve(times: list[float], counts: list[int]) -> Any:
    return graph_objects().Scatter(
        name="in the system",
        x=times,
        y=counts,
        mode="lines",
        line={"color": MEASURED.colour, "width": 1.5, "shape": "hv"},
        fill="tozeroy",
        fillcolor=translucent(MEASURED.colour, 0.25),
        hovertemplate="%{y} in the system at %{x:.2f} s<extra></extra>",
    )


def _mean(mean: float, end: float) -> Any:
    return graph_objects().Scatter(
        name=f"mean L = {mean:.2f}",
        x=[0, end],
        y=[mean, mean],
        mode="lines",
        line={"color": NEUTRAL, "width": 2.5, "dash": "dash"},
        hovertemplate=f"mean {mean:.3f}<extra></extra>",
    )


def _panels(title: str, rows: int) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.07)
    figure.update_layout(
        template=template(), title_text=title, height=520, barmode="overlay", autosize=True
    )
    figure.update_yaxes(title_text="request", range=[rows - 0.4, -0.6], row=1, col=1)
    figure.update_yaxes(title_text="requests", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text="time since the first arrival (s)", row=2, col=1)
    figure.update_xaxes(showticklabels=False, row=1, col=1)
    return figure
