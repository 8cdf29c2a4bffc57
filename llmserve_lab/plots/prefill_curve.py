"""Prefill time over prompt length, measured, and the line and parabola that it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import CALCULATED, GUESS, MEASURED, NEUTRAL, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT = 400
POINTS = 60  # of each fitted line
HEADROOM = 1.12  # of the axes, beyond the largest measurement


def prefill_curve(
    seconds: Mapping[int, float],
    curve: Any,
    guess: float | None = None,
    title: str = "Where does the prefill's time begin to bend?",
) -> go.Figure:
    """Measured times as points; the fit as a line; its linear and its quadratic part.

    Args:
        seconds: prompt length in tokens -> seconds of one pass.
        curve: the fit: `fixed`, `linear`, `quadratic`, and `crossover` in tokens, where both parts
            are equal.
        guess: the learner's crossover in tokens, drawn where it lies within the measured lengths.

    Raises:
        ValueError: no measurement.
    """
    if not seconds:
        raise ValueError("prefill_curve needs the time of at least one prompt length.")
    lengths = sorted(seconds)
    figure = new_figure(title, HEIGHT)
    across = [lengths[-1] * i / (POINTS - 1) for i in range(POINTS)]
    parts = [
        ("fit: a + b n + c n\u00b2", [curve.fixed + _sum(curve, n) for n in across], "solid"),
        ("b n: linear layers", [curve.linear * n for n in across], "dash"),
        ("c n\u00b2: attention", [curve.quadratic * n * n for n in across], "dot"),
    ]
    for name, values, dash in parts:
        figure.add_trace(_line(name, across, values, dash))
    figure.add_trace(_points(lengths, [1000 * seconds[n] for n in lengths]))
    top = 1000 * max(seconds.values()) * HEADROOM
    _mark(figure, curve.crossover, lengths[-1], "both parts equal", CALCULATED.colour, 0.98)
    if guess is not None:
        _mark(figure, guess, lengths[-1], GUESS.label, GUESS.colour, 0.86)
    figure.update_xaxes(title_text="prompt length n (tokens)", range=[0, lengths[-1] * 1.03])
    figure.update_yaxes(title_text="time of the pass (ms)", range=[0, top])
    return figure


def _sum(curve: Any, n: float) -> float:
    return float(curve.linear * n + curve.quadratic * n * n)


def _line(name: str, across: list[float], values: list[float], dash: str) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=across,
        y=[1000 * value for value in values],
        mode="lines",
        line={"color": CALCULATED.colour, "width": 2, "dash": dash},
        hovertemplate="%{x:.0f} tokens: %{y:.0f} ms<extra>" + name + "</extra>",
    )


def _points(lengths: list[int], values: list[float]) -> Any:
    return graph_objects().Scatter(
        name=MEASURED.label,
        x=lengths,
        y=values,
        mode="markers",
        marker={"color": MEASURED.colour, "size": 9},
        hovertemplate="%{x} tokens: %{y:.1f} ms<extra>measured</extra>",
    )


def _mark(
    figure: go.Figure, place: float, longest: float, text: str, colour: str, height: float
) -> None:
    """A vertical line with its number, or a note where it lies beyond the axis."""
    inside = isfinite(place) and place <= longest
    on_the_left = inside and place < longest / 2
    label = f"{text}: {place:,.0f} tokens" if isfinite(place) else f"{text}: never"
    if inside:
        figure.add_vline(x=place, line={"color": colour, "width": 1.5, "dash": "dash"})
    figure.add_annotation(
        text=label if inside else f"{label} \u2192", showarrow=False,
        x=place if inside else longest, xanchor="left" if on_the_left else "right",
        xshift=6 if on_the_left else -6, y=height, yref="paper",
        font={"color": colour if inside else NEUTRAL},
    )  # fmt: skip
