"""A model's decode step under the roofs of several GPUs, batch by batch. Everything calculated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.roofline import log_axis, roof, si
from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import graph_objects, new_figure, owner_colour

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT = 470
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")
ACROSS = (0.3, 3000.0)  # operations a byte
UP = (5e10, 2e15)  # operations per second


def gpu_roofs(
    gpus: Mapping[str, Any],
    intensity: Callable[[int], float],
    milliseconds: Callable[[str, int], float],
    batch_sizes: Sequence[int] = (1, 4, 16, 64, 256, 512),
    title: str = "How large must a batch be until arithmetic decides?",
) -> go.Figure:
    """A roof per GPU; a slider steps through batch sizes and puts the decode step on each roof.

    Args:
        gpus: name -> object with `bandwidth` (bytes/s) and `flops` (operations/s).
        intensity: batch size -> operations a byte of the decode step.
        milliseconds: (GPU's name, batch size) -> the least that the step takes.

    Raises:
        ValueError: no GPU or no batch size.
    """
    if not gpus or not batch_sizes:
        raise ValueError("gpu_roofs needs at least one GPU and one batch size.")
    figure = new_figure(f"{title} (calculated)", HEIGHT)
    stepper = Stepper(figure)
    for index, (name, gpu) in enumerate(gpus.items()):
        style = owner_colour(index), DASHES[index % len(DASHES)]
        stepper.always(roof(name, gpu.bandwidth, gpu.flops, ACROSS, *style))
    for size in batch_sizes:
        x = intensity(size)
        above = [name for name, gpu in gpus.items() if x >= gpu.flops / gpu.bandwidth]
        label = f"{size}: {x:.3g} operations a byte; arithmetic decides on {_listed(above)}"
        stepper.stop(label, [(_points(gpus, x, size, milliseconds), {})])
    log_axis(figure, "x", "intensity (operations for each byte moved)", ACROSS)
    log_axis(figure, "y", "operations per second", UP)
    figure.update_layout(margin={"b": 128})
    labels = [f"Batch {label}." for label in stepper.labels]
    figure.update_layout(meta={"alt": " ".join([f"{title} Calculated.", *labels])})
    return stepper.finish(start=0, below=58, prefix="batch ")


def _points(
    gpus: Mapping[str, Any], x: float, size: int, milliseconds: Callable[[str, int], float]
) -> Any:
    rates = [min(gpu.bandwidth * x, gpu.flops) for gpu in gpus.values()]
    words = [
        f"{name}, batch {size}: {milliseconds(name, size):.2f} ms a step, {si(rate)}FLOP/s"
        for name, rate in zip(gpus, rates, strict=True)
    ]
    return graph_objects().Scatter(
        x=[x] * len(rates),
        y=rates,
        mode="markers",
        marker={
            "size": 12,
            "symbol": [SYMBOLS[i % len(SYMBOLS)] for i in range(len(rates))],
            "color": [owner_colour(i) for i in range(len(rates))],
        },
        customdata=words,
        hovertemplate="%{customdata}<extra>calculated</extra>",
        showlegend=False,
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "none of them"
