"""The same requests timed from two moments: when they were due, and when they were sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import MEASURED, REJECTED, Mark, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

SENT = Mark(REJECTED.colour, "x", "timed from its sending")
DUE = Mark(MEASURED.colour, "circle", "timed from when it was due")


def omission(
    due: Sequence[float],
    sent: Sequence[float],
    title: str = "Who waited, and who of them is in the report?",
) -> go.Figure:
    """Latencies (s) of requests in order, from when each was due and from when it was sent.

    Raises:
        ValueError: no requests, or two lists of different lengths.
    """
    if not due or len(due) != len(sent):
        raise ValueError("omission needs two latencies for each request, and at least one request.")
    figure = new_figure(title)
    figure.add_trace(_dots(DUE, due))
    figure.add_trace(_dots(SENT, sent))
    figure.update_xaxes(title_text="request", rangemode="tozero")
    figure.update_yaxes(title_text="latency (s)", rangemode="tozero")
    return figure


def _dots(mark: Mark, seconds: Sequence[float]) -> Any:
    return graph_objects().Scatter(
        name=mark.label,
        x=list(range(1, len(seconds) + 1)),
        y=list(seconds),
        mode="markers",
        marker={"color": mark.colour, "size": 8, "symbol": mark.pattern},
        hovertemplate=f"request %{{x}}, {mark.label}: %{{y:.3f}} s<extra></extra>",
    )
