"""Attention's share of a prefill's operations, over prompt length, for several models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import NEUTRAL, graph_objects, new_figure, owner_colour

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT = 400
SHORTEST, LONGEST = 64, 2**18  # tokens
POINTS_PER_DOUBLING = 4
DASHES = ("solid", "dash", "dot", "dashdot")


def attention_share(
    models: Mapping[str, Callable[[float], float]],
    crossovers: Mapping[str, float],
    title: str = "From which length on is attention most of a prefill?",
) -> go.Figure:
    """A line per model; a diamond where it passes one half. All numbers are calculated.

    Args:
        models: name -> function from a prompt length to attention's share, 0 to 1.
        crossovers: name -> the length at which that share is one half.

    Raises:
        ValueError: no model, or one without a crossover.
    """
    if not models or set(models) - set(crossovers):
        raise ValueError("attention_share needs at least one model, and a crossover for each.")
    figure = new_figure(f"{title} (calculated)", HEIGHT)
    for index, (name, share) in enumerate(models.items()):
        figure.add_trace(_line(index, name, share))
        figure.add_trace(_half(index, name, crossovers[name]))
    figure.add_hline(y=50, line={"color": NEUTRAL, "width": 1, "dash": "dash"})
    ticks = [2**power for power in range(6, 19, 2)]
    figure.update_xaxes(
        title_text="prompt length (tokens)", type="log", tickvals=ticks,
        ticktext=[f"{t // 1024}k" if t >= 1024 else str(t) for t in ticks],
    )  # fmt: skip
    figure.update_yaxes(title_text="attention's share of the operations (%)", range=[0, 100])
    return figure


def _line(index: int, name: str, share: Callable[[float], float]) -> Any:
    steps = (LONGEST // SHORTEST).bit_length() - 1
    lengths = [
        SHORTEST * 2 ** (i / POINTS_PER_DOUBLING) for i in range(steps * POINTS_PER_DOUBLING + 1)
    ]
    return graph_objects().Scatter(
        name=name,
        x=lengths,
        y=[100 * share(n) for n in lengths],
        mode="lines",
        line={"color": owner_colour(index), "width": 2.5, "dash": DASHES[index % len(DASHES)]},
        hovertemplate="%{x:,.0f} tokens: %{y:.1f} %<extra>" + name + "</extra>",
    )


def _half(index: int, name: str, crossover: float) -> Any:
    return graph_objects().Scatter(
        name=f"{name}: half at {crossover:,.0f}",
        x=[crossover],
        y=[50],
        mode="markers",
        marker={"symbol": "diamond", "size": 11, "color": owner_colour(index)},
        showlegend=False,
        hovertemplate=f"{name}: half at {crossover:,.0f} tokens<extra></extra>",
    )
