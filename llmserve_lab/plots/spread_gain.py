"""What continuous batching gains over static batching as answers differ more in length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import CALCULATED, GUESS, MEASURED, NEUTRAL, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEADROOM = 1.1
MARGIN = 0.04  # of spread, so that no mark stands on the edge


def spread_gain(
    measured: Mapping[float, float],
    calculated: Mapping[float, float],
    guess: tuple[float, float] | None = None,
    title: str = "What is gained when answers differ in length?",
) -> go.Figure:
    """Both: spread of the answers' lengths (half of the range / mean) -> steps of static batching
    over steps of continuous batching. guess: the spread asked about, and what was guessed for it.

    Raises:
        ValueError: nothing measured or nothing calculated.
    """
    if not measured or not calculated:
        raise ValueError("spread_gain needs measured gains and calculated ones.")
    figure = new_figure(title)
    figure.add_hline(y=1, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    line = {"color": CALCULATED.colour, "width": 2, "dash": "dash"}
    figure.add_trace(_series("calculated, without end", calculated, mode="lines", line=line))
    mark = {"color": MEASURED.colour, "size": 10}
    figure.add_trace(_series("measured", measured, mode="markers", marker=mark))
    if guess is not None:
        ring = {"color": GUESS.colour, "size": 12, "symbol": "circle-open", "line": {"width": 2}}
        figure.add_trace(_series("your guess", dict([guess]), mode="markers", marker=ring))
    top = max([*measured.values(), *calculated.values(), *([guess[1]] if guess else [])])
    widest = max([*measured, *calculated])
    figure.update_xaxes(
        title_text="spread: half of the range / mean", range=[-MARGIN, widest + MARGIN]
    )
    figure.update_yaxes(
        title_text="steps, static / continuous",
        range=[min(0.9, *measured.values()), HEADROOM * top],
    )
    figure.update_layout(showlegend=True)
    return figure


def _series(name: str, values: Mapping[float, float], **style: Any) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=list(values),
        y=list(values.values()),
        hovertemplate="spread %{x:.2f}: %{y:.2f} times the steps<extra>" + name + "</extra>",
        **style,
    )
