"""The what-if triangle: latency, throughput and memory of a model on a chosen GPU, by formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    CALCULATED,
    NEUTRAL,
    REJECTED,
    TRANSPARENT,
    bar_style,
    graph_objects,
    template,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

Calculate = Callable[[str, int], Mapping[str, float]]

ROOM_FOR_TEXT = 1.22  # of the longest bar, so that its number fits beside it
PANELS = (
    ("latency_ms", "latency (ms per token)", ".3~s"),
    ("throughput", "throughput (tokens/s)", ".3~s"),
    ("memory_gib", "memory (GiB)", ".3~s"),
)


def whatif_triangle(
    calculate: Calculate,
    gpus: Sequence[str],
    batch_sizes: Sequence[int] = (1, 8, 32, 128),
    title: str = "What would a 7B model do on this GPU?",
) -> go.Figure:
    """Three bar panels, a bar per batch size; a menu chooses the GPU. All numbers are calculated.

    Args:
        calculate: (GPU name, batch size) -> `latency_ms` per token, `throughput` in tokens/s,
            `memory_gib` needed and `capacity_gib` of the GPU. A batch that needs more memory
            than the GPU has is drawn crossed out.
        gpus: the menu's entries, as `calculate` knows them.

    Raises:
        ValueError: no GPU or no batch size, or `calculate` leaves a field out.
    """
    if not gpus or not batch_sizes:
        raise ValueError("whatif_triangle needs at least one GPU and one batch size.")
    figure = _panels(f"{title} (calculated)")
    for gpu in gpus:
        numbers = [_checked(calculate(gpu, size), gpu) for size in batch_sizes]
        _add_gpu(figure, gpu, list(batch_sizes), numbers, visible=gpu == gpus[0])
    _add_key(figure)
    _add_menu(figure, list(gpus))
    return figure


def _checked(numbers: Mapping[str, float], gpu: str) -> Mapping[str, float]:
    for name in (*(field for field, _, _ in PANELS), "capacity_gib"):
        if name not in numbers:
            raise ValueError(f"calculate({gpu!r}, ...) returned no {name!r}.")
    return numbers


def _panels(title: str) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=3, shared_yaxes=True, horizontal_spacing=0.06)
    figure.update_layout(
        template=template(), title_text=title, height=390, margin={"t": 124}, autosize=True
    )
    figure.update_yaxes(type="category", showgrid=False)
    figure.update_yaxes(title_text="batch size", row=1, col=1)
    for column, (_, axis, _) in enumerate(PANELS, start=1):
        figure.update_xaxes(
            title_text=axis, rangemode="tozero", nticks=4, tickangle=0, row=1, col=column
        )
    return figure


def _add_gpu(
    figure: go.Figure,
    gpu: str,
    sizes: list[int],
    numbers: list[Mapping[str, float]],
    visible: bool,
) -> None:
    fits = [n["memory_gib"] <= n["capacity_gib"] for n in numbers]
    for column, (name, _, digits) in enumerate(PANELS, start=1):
        bars = graph_objects().Bar(
            name=gpu,
            orientation="h",
            y=[str(size) for size in sizes],
            x=[n[name] for n in numbers],
            text=[f"{n[name]:.3g}" if n[name] < 1000 else f"{n[name]:,.0f}" for n in numbers],
            textposition="outside",
            textangle=0,
            marker=_styles(fits),
            visible=visible,
            showlegend=False,
            cliponaxis=False,
            hovertemplate=f"{gpu}, batch %{{y}}: %{{x:{digits}}}<extra>calculated</extra>",
        )
        figure.add_trace(bars, row=1, col=column)
    figure.add_trace(_capacity(gpu, sizes, numbers[0]["capacity_gib"], visible), row=1, col=3)


def _styles(fits: list[bool]) -> dict[str, Any]:
    marks = [CALCULATED if fit else REJECTED for fit in fits]
    colours = [mark.colour for mark in marks]
    shapes = [mark.pattern for mark in marks]
    pattern = {"shape": shapes, "fgcolor": colours, "size": 6}
    return {"color": colours, "line": {"width": 0}, "pattern": pattern}


def _capacity(gpu: str, sizes: list[int], capacity: float, visible: bool) -> Any:
    return graph_objects().Scatter(
        name=f"{gpu} holds {capacity:.3g} GiB",
        x=[capacity] * len(sizes),
        y=[str(size) for size in sizes],
        mode="lines",
        line={"color": NEUTRAL, "width": 2, "dash": "dash"},
        visible=visible,
        showlegend=True,
        hovertemplate=f"{gpu} holds {capacity:.3g} GiB<extra></extra>",
    )


def _add_key(figure: go.Figure) -> None:
    for mark, label in ((CALCULATED, "fits"), (REJECTED, "does not fit")):
        style = bar_style(mark)
        style["pattern"] = {"shape": mark.pattern, "fgcolor": mark.colour, "size": 6}
        key = graph_objects().Bar(name=label, x=[None], y=[None], marker=style)
        figure.add_trace(key, row=1, col=1)


def _add_menu(figure: go.Figure, gpus: list[str]) -> None:
    per_gpu, keys = len(PANELS) + 1, 2
    buttons = []
    for index, gpu in enumerate(gpus):
        shown = [i // per_gpu == index for i in range(per_gpu * len(gpus))] + [True] * keys
        change = [{"visible": shown}, _ranges(figure, index * per_gpu)]
        buttons.append({"label": gpu, "method": "update", "args": change})
    figure.update_layout(buttons[0]["args"][1])
    menu = {
        "type": "buttons",
        "direction": "right",
        "buttons": buttons,
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "bottom",
        "showactive": True,
        "bgcolor": TRANSPARENT,
        "bordercolor": NEUTRAL,
        "borderwidth": 1,
        "pad": {"b": 34},
    }
    figure.update_layout(updatemenus=[menu])


def _ranges(figure: go.Figure, first: int) -> dict[str, list[float]]:
    """The x range of each panel that fits the bars of one GPU, whose traces begin at `first`."""
    names = ("xaxis.range", "xaxis2.range", "xaxis3.range")
    longest = [max(figure.data[first + i].x) for i in range(len(PANELS))]
    longest[-1] = max(longest[-1], figure.data[first + len(PANELS)].x[0])
    return {name: [0, value * ROOM_FOR_TEXT] for name, value in zip(names, longest, strict=True)}
