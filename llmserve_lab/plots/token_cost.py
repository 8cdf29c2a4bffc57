"""What a million tokens cost over the load: all of them, and those that came in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    CALCULATED,
    NEUTRAL,
    SHARED,
    graph_objects,
    new_figure,
    or_nothing,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go


def token_cost(
    loads: Sequence[float],
    every: Sequence[float],
    good: Sequence[float | None],
    title: str = "At which load is a million tokens cheapest?",
) -> go.Figure:
    """Price of a million output tokens over the load. good: of requests that kept the promise;
    None where none did.

    Raises:
        ValueError: nothing to draw, or lists of different lengths.
    """
    if not loads or not len(loads) == len(every) == len(good):
        raise ValueError("token_cost needs as many costs of both kinds as loads, at least one.")
    figure = new_figure(f"{title} (simulated)")
    known = [(load, cost) for load, cost in zip(loads, good, strict=True) if cost is not None]
    figure.add_trace(_line("every token", list(loads), list(every), CALCULATED.colour, "solid"))
    figure.add_trace(
        _line(
            "a token in time", [x for x, _ in known], [y for _, y in known], SHARED.colour, "dash"
        )
    )
    if known:
        figure.add_trace(_cheapest(*min(known, key=lambda pair: pair[1])))
    figure.update_xaxes(title_text="offered load (of capacity)", rangemode="tozero")
    figure.update_yaxes(title_text="price of a million tokens", rangemode="tozero")
    figure.update_yaxes(range=[0, 1.15 * max(every)])
    return figure


def _line(name: str, x: list[float], y: list[float], colour: str, dash: str) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=or_nothing(x),
        y=or_nothing(y),
        mode="lines+markers",
        line={"color": colour, "width": 2.5, "dash": dash},
        marker={"color": colour, "size": 7},
        hovertemplate=f"{name}, load %{{x:.2f}}: %{{y:.3g}}<extra></extra>",
    )


def _cheapest(load: float, cost: float) -> Any:
    return graph_objects().Scatter(
        name=f"cheapest in time: {cost:.3g} at load {load:.2f}",
        x=[load],
        y=[cost],
        mode="markers",
        marker={"symbol": "circle-open", "size": 17, "color": NEUTRAL, "line": {"width": 2.5}},
        hovertemplate=f"cheapest in time: {cost:.3g}<extra></extra>",
    )
