"""How long each request waits for its first token, by arrival, under several schedulers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import MEASURED, NEUTRAL, OWNERS, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

STYLES = (  # colour, marker, dash
    (NEUTRAL, "square", "dot"),
    (MEASURED.colour, "circle", "solid"),
    (OWNERS[1], "diamond", "dash"),
)
HEADROOM = 1.08


def first_waits(
    waits: Mapping[str, Sequence[float]],
    promise: float,
    title: str = "Who waits how long for the first token?",
) -> go.Figure:
    """waits: steps from each request's arrival to its first token, in order of arrival. promise: a
    line at so many steps.

    Raises:
        ValueError: no series, more than three, or series of different lengths.
    """
    lengths = {len(values) for values in waits.values()}
    if not 1 <= len(waits) <= len(STYLES) or len(lengths) != 1:
        raise ValueError(
            f"first_waits draws 1 to {len(STYLES)} series, all of the same requests; it got "
            f"{len(waits)}."
        )
    figure = new_figure(title)
    for (name, values), style in zip(waits.items(), STYLES, strict=False):
        figure.add_trace(_line(name, values, style))
    figure.add_hline(y=promise, line={"color": NEUTRAL, "width": 1.5, "dash": "longdash"})
    figure.add_annotation(
        x=1, xref="paper", xanchor="right", y=promise, yanchor="bottom", showarrow=False,
        text=f"promise: {promise:g} steps",
    )  # fmt: skip
    top = max(promise, *(value for values in waits.values() for value in values))
    figure.update_xaxes(title_text="request, in order of arrival")
    figure.update_yaxes(title_text="steps until the first token", range=[0, HEADROOM * top])
    figure.update_layout(showlegend=True, meta={"alt": _in_words(title, waits, promise)})
    return figure


def _line(name: str, values: Sequence[float], style: tuple[str, str, str]) -> Any:
    colour, symbol, dash = style
    return graph_objects().Scatter(
        name=name,
        x=list(range(len(values))),
        y=list(values),
        mode="lines+markers",
        line={"color": colour, "width": 1.2, "dash": dash},
        marker={"color": colour, "size": 6, "symbol": symbol},
        hovertemplate="request %{x}: %{y:.0f} steps<extra>" + name + "</extra>",
    )


def _in_words(title: str, waits: Mapping[str, Sequence[float]], promise: float) -> str:
    parts = [title]
    for name, values in waits.items():
        kept = sum(value <= promise for value in values)
        parts.append(
            f"{name}: from {min(values):.0f} to {max(values):.0f} steps, {kept} of {len(values)} "
            f"within {promise:g}."
        )
    return " ".join(parts)
