"""A distribution of waits with a percentile that a slider moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import (
    MEASURED,
    NEUTRAL,
    WASTE,
    bar_style,
    graph_objects,
    new_figure,
    or_nothing,
    translucent,
)
from llmserve_lab.simulate.load_result import percentile

if TYPE_CHECKING:
    import plotly.graph_objects as go

BINS = 24
PERCENTS = (*range(5, 100, 5), 97, 98, 99, 100)
START = 50


def percentile_picker(
    values: Sequence[float],
    title: str = "How long does a given share of the requests wait at most?",
    quantity: str = "latency",
    unit: str = "s",
) -> go.Figure:
    """A histogram of `values`; the slider chooses a percentile (linear interpolation). Bars up to
    it are solid, those above it hatched; the dotted line is the mean, which no slider moves.

    Raises:
        ValueError: no values, or not all above 0.
    """
    ordered = sorted(float(value) for value in values)
    if not ordered or ordered[0] <= 0:
        raise ValueError("percentile_picker needs at least one value, all above 0.")
    width = ordered[-1] / BINS
    counts = [0] * BINS
    for value in ordered:
        counts[min(BINS - 1, int(value / width))] += 1
    figure = new_figure(title, height=400)
    stepper = Stepper(figure)
    stepper.always(_line("mean", sum(ordered) / len(ordered), max(counts), NEUTRAL, "dot"))
    for percent in PERCENTS:
        place = percentile(ordered, percent)
        traces = [_bars(counts, width, place, below) for below in (True, False)]
        traces.append(_line(f"p{percent}", place, max(counts), WASTE.colour, "solid"))
        label = f"{percent}: {place:.3g} {unit}"
        stepper.stop(label, [(trace, {}) for trace in traces])
    figure.update_layout(barmode="overlay", bargap=0.0, margin={"b": 118})
    figure.update_xaxes(title_text=f"{quantity} ({unit})", range=[0, ordered[-1] * 1.03])
    figure.update_yaxes(title_text="requests", rangemode="tozero")
    figure.update_layout(meta={"alt": _in_words(title, ordered, f"{quantity} in {unit}")})
    stepper.finish(start=PERCENTS.index(START))
    figure.layout.sliders[0].currentvalue.prefix = "percentile "
    return figure


def _bars(counts: list[int], width: float, place: float, below: bool) -> Any:
    """The bars whose middle lies up to `place`, or those above it."""
    middles = [(i + 0.5) * width for i in range(len(counts))]
    chosen = [(m, c) for m, c in zip(middles, counts, strict=True) if (m <= place) is below]
    style = bar_style(MEASURED)
    if not below:
        colour = translucent(MEASURED.colour, 0.3)
        style |= {"color": colour}
        style["pattern"] = {"shape": "/", "bgcolor": colour, "fgcolor": MEASURED.colour, "size": 6}
    return graph_objects().Bar(
        name="up to the percentile" if below else "slower",
        x=or_nothing([middle for middle, _ in chosen]),
        y=or_nothing([count for _, count in chosen]),
        width=width * 0.92,
        marker=style,
        hovertemplate="%{y} requests near %{x:.3g}<extra></extra>",
    )


def _line(name: str, place: float, height: float, colour: str, dash: str) -> Any:
    return graph_objects().Scatter(
        name=f"{name}: {place:.3g}",
        x=[place, place],
        y=[0, height * 1.05],
        mode="lines",
        line={"color": colour, "width": 2.5, "dash": dash},
        hovertemplate=f"{name}: {place:.4g}<extra></extra>",
    )


def _in_words(title: str, ordered: list[float], what: str) -> str:
    shown = ", ".join(f"p{p} {percentile(ordered, p):.3g}" for p in (5, 50, 90, 95, 99))
    mean = sum(ordered) / len(ordered)
    return f"{title} {len(ordered)} requests, {what}: mean {mean:.3g}, {shown}. A slider moves it."
