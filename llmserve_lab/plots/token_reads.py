"""Bytes that a decode step moves for each of its tokens: weights shared, keys and values not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import KV_CACHE, MEASURED, WEIGHTS, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.batch_sweep import BatchPoint

DASHES = ("dash", "dot", "dashdot")
SYMBOLS = ("circle", "diamond", "square")


def token_reads(
    points: Mapping[str, Sequence[BatchPoint]],
    weights: float,
    kv: Mapping[str, float],
    title: str = "What must be moved for one token?",
) -> go.Figure:
    """On logarithmic axes over the batch size: `weights` bytes divided by the batch, each case's
    own `kv` bytes for each request, and the engine's count for each token.

    Args:
        points: case -> its points. kv: the same cases -> bytes.

    Raises:
        ValueError: no case, or other cases in `kv`.
    """
    if not points or set(points) != set(kv):
        raise ValueError("token_reads needs points and KV bytes of the same cases, at least one.")
    figure = new_figure(title, height=440)
    figure.update_layout(margin={"t": 116})
    sizes = sorted({point.batch_size for case in points.values() for point in case})
    shared = [weights / size for size in sizes]
    figure.add_trace(_line("weights / batch", WEIGHTS.colour, "solid", sizes, shared))
    for (case, counted), dash, symbol in zip(points.items(), DASHES, SYMBOLS, strict=False):
        each = [kv[case]] * len(sizes)
        figure.add_trace(_line(f"KV, {case}", KV_CACHE.colour, dash, sizes, each))
        figure.add_trace(_counted(case, counted, symbol))
    figure.update_xaxes(
        title_text="batch size", type="log", tickvals=sizes,
        ticktext=[str(size) for size in sizes], minor={"ticks": ""},
    )  # fmt: skip
    figure.update_yaxes(title_text="bytes for one token", type="log", dtick=1, exponentformat="SI")
    return figure


def _line(name: str, colour: str, dash: str, sizes: list[int], values: list[float]) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=sizes,
        y=values,
        mode="lines",
        line={"color": colour, "width": 2.5, "dash": dash},
        hovertemplate=f"{name}, batch %{{x}}: %{{y:.3s}}B<extra></extra>",
    )


def _counted(case: str, points: Sequence[BatchPoint], symbol: str) -> Any:
    return graph_objects().Scatter(
        name=f"both, {case} (counted)",
        x=[point.batch_size for point in points],
        y=[point.num_bytes / point.batch_size for point in points],
        mode="markers",
        marker={"color": MEASURED.colour, "size": 9, "symbol": symbol},
        hovertemplate=f"{case}, batch %{{x}}: %{{y:.3s}}B counted<extra></extra>",
    )
