"""Two lanes of time: what the host did, and when the device did the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    DECODE,
    MEASURED,
    NEUTRAL,
    REJECTED,
    bar_style,
    graph_objects,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.async_device import Kernel

LANES = ("host", "device")
COLOURS = (REJECTED.colour, MEASURED.colour)
DASHES = ("dash", "solid")


def device_timeline(
    kernels: Sequence[Kernel],
    began: float,
    stops: Mapping[str, float],
    title: str = "What had been done when the clock was read?",
) -> go.Figure:
    """Launches and kernels in milliseconds since `began`, with a line for each reading of the clock
    (name -> seconds since `began`; at most two, the wrong one first).

    Raises:
        ValueError: no kernels, or more than two readings.
    """
    if not kernels or len(stops) > len(COLOURS):
        raise ValueError("device_timeline needs at least one kernel and at most two readings.")
    figure = new_figure(title, height=300)
    figure.add_trace(_launches(kernels, began))
    figure.add_trace(_kernels(kernels, began))
    for place, (name, seconds) in enumerate(stops.items()):
        figure.add_trace(_reading(name, 1000 * seconds, place))
    figure.update_layout(barmode="overlay")
    figure.update_xaxes(title_text="time (ms)", rangemode="tozero")
    figure.update_yaxes(
        title_text="who works", tickvals=[0, 1], ticktext=LANES, range=[1.6, -0.6], showgrid=False
    )
    return figure


def _launches(kernels: Sequence[Kernel], began: float) -> Any:
    return graph_objects().Scatter(
        name="launched",
        x=[1000 * (kernel.launched - began) for kernel in kernels],
        y=[0] * len(kernels),
        mode="markers",
        marker={"symbol": "line-ns", "size": 22, "line": {"width": 2, "color": NEUTRAL}},
        hovertemplate="launched at %{x:.2f} ms<extra></extra>",
    )


def _kernels(kernels: Sequence[Kernel], began: float) -> Any:
    style = bar_style(DECODE) | {"line": {"width": 1, "color": "#FFFFFF"}}
    return graph_objects().Bar(
        name="a kernel runs",
        orientation="h",
        y=[1] * len(kernels),
        base=[1000 * (kernel.started - began) for kernel in kernels],
        x=[1000 * (kernel.ended - kernel.started) for kernel in kernels],
        width=0.5,
        marker=style,
        customdata=list(range(1, len(kernels) + 1)),
        hovertemplate="kernel %{customdata}: %{x:.2f} ms<extra></extra>",
    )


def _reading(name: str, milliseconds: float, place: int) -> Any:
    return graph_objects().Scatter(
        name=f"{name}: {milliseconds:.3g} ms",
        x=[milliseconds, milliseconds],
        y=[-0.5, 1.5],
        mode="lines",
        line={"color": COLOURS[place], "width": 2.5, "dash": DASHES[place]},
        hovertemplate=f"{name}: {milliseconds:.3f} ms<extra></extra>",
    )
