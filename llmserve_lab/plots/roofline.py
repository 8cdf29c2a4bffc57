"""The roofline: what a machine can reach at each intensity, and what real work reached."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import (
    CALCULATED,
    DECODE,
    MEASURED,
    NEUTRAL,
    PREFILL,
    Mark,
    graph_objects,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT = 470
WHOLE = 100  # from which on a number is written without decimals
MARGIN = 2.5  # times the outermost points, on both log axes
KINDS: tuple[tuple[str, Mark, str, str], ...] = (  # kind, colour, symbol, unit of its size
    ("prefill", PREFILL, "square", "tokens"),
    ("decode", DECODE, "circle", "requests"),
    ("product", MEASURED, "diamond", "vectors"),
)


def roofline(
    bandwidth: float,
    flops: float,
    uses: Sequence[Any],
    title: str = "What holds this machine back: memory or arithmetic?",
) -> go.Figure:
    """The roof min(bandwidth x intensity, flops) and a point for each use; a slider steps through
    the uses and draws the way up to the roof. Source: Williams et al. 2009.

    Args:
        bandwidth, flops: of the machine, in bytes/s and operations/s.
        uses: objects with `kind` ("prefill", "decode" or "product"), `size`, `intensity` in
            operations a byte, and `rate` in operations/s.

    Raises:
        ValueError: no use.
    """
    if not uses:
        raise ValueError("roofline needs at least one use of the machine, such as decode_uses.")
    figure = new_figure(title, HEIGHT)
    stepper = Stepper(figure)
    ridge = flops / bandwidth
    ends = _ends([use.intensity for use in uses] + [ridge])
    stepper.always(roof("the roof", bandwidth, flops, ends, NEUTRAL, "solid"))
    for kind, mark, symbol, _ in KINDS:
        chosen = [use for use in uses if use.kind == kind]
        if chosen:
            stepper.always(_points(kind, mark, symbol, chosen))
    for use in uses:
        top = min(bandwidth * use.intensity, flops)
        stepper.stop(
            f"{_caption(use)}; {use.rate / top:.0%} of the roof", [(_way_up(use, top), {})]
        )
    rates = [use.rate for use in uses] + [flops, bandwidth * ends[0]]
    _layout(figure, ends, _ends(rates), ridge)
    figure.update_layout(meta={"alt": _in_words(title, bandwidth, flops, uses)})
    return stepper.finish(start=0, below=58, prefix="")


def roof(
    name: str, bandwidth: float, flops: float, ends: tuple[float, float], colour: str, dash: str
) -> Any:
    """One machine's roof, as a line over intensities."""
    corners = sorted({ends[0], min(max(flops / bandwidth, ends[0]), ends[1]), ends[1]})
    return graph_objects().Scatter(
        name=name,
        x=corners,
        y=[min(bandwidth * x, flops) for x in corners],
        mode="lines",
        line={"color": colour, "width": 2.5, "dash": dash},
        hovertemplate="%{x:.3g} operations a byte: at most %{y:.3s}FLOP/s<extra>"
        + name
        + "</extra>",
    )


def log_axis(figure: go.Figure, letter: str, title: str, ends: tuple[float, float]) -> None:
    """A logarithmic axis with a tick at each power of ten."""
    powers = range(round(log10(ends[0]) - 1), round(log10(ends[1])) + 2)
    axis = {
        "title_text": title, "type": "log", "range": [log10(ends[0]), log10(ends[1])],
        "tickvals": [10.0**p for p in powers], "ticktext": [si(10.0**p) for p in powers],
    }  # fmt: skip
    figure.update_layout({f"{letter}axis": axis})


def si(value: float) -> str:
    """A number before its unit, with a prefix: 2e12 is "2 T"."""
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:,.0f} " if value >= WHOLE else f"{value:.3g} "


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / MARGIN, max(values) * MARGIN


def _points(kind: str, mark: Mark, symbol: str, uses: list[Any]) -> Any:
    return graph_objects().Scatter(
        name=f"{kind}, measured",
        x=[use.intensity for use in uses],
        y=[use.rate for use in uses],
        mode="markers",
        marker={"color": mark.colour, "symbol": symbol, "size": 10},
        customdata=[_caption(use) for use in uses],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _caption(use: Any) -> str:
    unit = next(unit for kind, _, _, unit in KINDS if kind == use.kind)
    unit = unit if use.size > 1 else unit.removesuffix("s")
    return (
        f"{use.kind}, {use.size} {unit}: {use.intensity:.1f} operations a byte, "
        f"{si(use.rate)}FLOP/s"
    )


def _way_up(use: Any, top: float) -> Any:
    return graph_objects().Scatter(
        x=[use.intensity, use.intensity],
        y=[use.rate, top],
        mode="lines+markers",
        line={"color": CALCULATED.colour, "width": 2, "dash": "dot"},
        marker={
            "symbol": ["circle-open", "line-ew-open"],
            "size": [18, 14],
            "line": {"width": 2.5},
        },
        hoverinfo="skip",
        showlegend=False,
    )


def _layout(
    figure: go.Figure, across: tuple[float, float], up: tuple[float, float], ridge: float
) -> None:
    log_axis(figure, "x", "intensity (operations for each byte moved)", across)
    log_axis(figure, "y", "operations per second", up)
    figure.add_vline(x=ridge, line={"color": NEUTRAL, "width": 1, "dash": "dash"})
    for text, anchor, shift in (("memory decides", "right", -8), ("arithmetic decides", "left", 8)):
        figure.add_annotation(
            text=text, x=log10(ridge), y=0.02, yref="paper", xanchor=anchor, xshift=shift,
            showarrow=False, font={"color": NEUTRAL},
        )  # fmt: skip
    figure.update_layout(margin={"b": 128})


def _in_words(title: str, bandwidth: float, flops: float, uses: Sequence[Any]) -> str:
    parts = [
        title,
        f"The roof rises with {si(bandwidth)}B/s up to {si(flops)}FLOP/s, from "
        f"{flops / bandwidth:.1f} operations a byte on.",
    ]
    return " ".join([*parts, *(f"{_caption(use)[0].upper()}{_caption(use)[1:]}." for use in uses)])
