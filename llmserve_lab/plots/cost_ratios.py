"""Two ways to do the same, cost by cost: how many times as much one takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    CALCULATED,
    MEASURED,
    NEUTRAL,
    Mark,
    bar_style,
    graph_objects,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

BASE_PIXELS, ROW_PIXELS = 190, 44
COUNTED = Mark(CALCULATED.colour, "/", "counted")
ROOM_FOR_TEXT = 2.2  # times the longest bar, on a log axis
SMALLEST = 0.7


def cost_ratios(
    counted: Mapping[str, float],
    measured: Mapping[str, float],
    axis: str,
    title: str,
) -> go.Figure:
    """A bar per cost on a logarithmic axis; a line at 1, where both ways cost the same.

    Args:
        counted, measured: cost, such as "bytes moved" -> how many times as much (above 0).
        axis: what is divided by what.

    Raises:
        ValueError: no cost, or one that is not above 0.
    """
    costs = {**counted, **measured}
    if not costs or min(costs.values()) <= 0:
        raise ValueError("cost_ratios needs at least one ratio, and each must be above 0.")
    figure = new_figure(title, BASE_PIXELS + ROW_PIXELS * len(costs))
    for mark, values in ((COUNTED, counted), (MEASURED, measured)):
        figure.add_trace(_bars(mark, values))
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1.5, "dash": "dash"})
    low, high = min(SMALLEST, *costs.values()), max(*costs.values(), 1) * ROOM_FOR_TEXT
    ticks = _powers_of_ten(low, high)
    figure.update_xaxes(
        title_text=axis, type="log", range=_logs(low, high),
        tickvals=ticks, ticktext=[f"{tick:,g}" for tick in ticks],
    )  # fmt: skip
    figure.update_yaxes(showgrid=False, autorange="reversed", title_text="cost")
    figure.update_layout(barmode="overlay")
    return figure


def _bars(mark: Mark, values: Mapping[str, float]) -> Any:
    return graph_objects().Bar(
        name=mark.label,
        orientation="h",
        y=list(values),
        x=list(values.values()),
        text=[
            f"{value:,.3g} times" if value < 1000 else f"{value:,.0f} times"
            for value in values.values()
        ],
        textposition="outside",
        cliponaxis=False,
        marker=bar_style(mark),
        hovertemplate="%{y}: %{x:,.4g} times<extra>" + mark.label + "</extra>",
    )


def _powers_of_ten(low: float, high: float) -> list[float]:
    from math import ceil, floor, log10

    return [10.0**power for power in range(ceil(log10(low)), floor(log10(high)) + 1)]


def _logs(low: float, high: float) -> list[float]:
    from math import log10

    return [log10(low), log10(high)]
