"""What one more token costs at each length, with and without a KV cache, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import DECODE, PREFILL, graph_objects, legend_below, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

KINDS = (("linear", "weights", "solid", "circle"), ("attention", "attention", "dash", "diamond"))
PLOT_PIXELS = 280
ENGINES = (("cached", "with the cache", DECODE), ("uncached", "without", PREFILL))


def step_work(
    rows: Sequence[dict[str, Any]], title: str = "What does the next token cost?"
) -> go.Figure:
    """Four lines over the length: products with weights and attention, with and without a cache.

    Args:
        rows: each with `length` (tokens), and under `cached` and `uncached` the operations
            `linear` and `attention`.

    Raises:
        ValueError: fewer than two rows.
    """
    if len(rows) < 2:
        raise ValueError("step_work needs the operations at two lengths or more.")
    lengths = [row["length"] for row in rows]
    figure = new_figure(title, PLOT_PIXELS + 170)
    legend_below(figure, PLOT_PIXELS)
    for engine, told, mark in ENGINES:
        for kind, name, dash, symbol in KINDS:
            values = [row[engine][kind] for row in rows]
            figure.add_trace(_line(f"{name}, {told}", mark.colour, dash, symbol, lengths, values))
    figure.update_xaxes(
        title_text="length of the sequence (tokens)", type="log", tickvals=lengths,
        ticktext=[f"{length:,}" for length in lengths], minor={"ticks": ""},
    )  # fmt: skip
    figure.update_yaxes(title_text="operations for the next token", type="log", dtick=1)
    return figure


def _line(
    name: str, colour: str, dash: str, symbol: str, lengths: list[int], values: list[int]
) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=lengths,
        y=values,
        mode="lines+markers",
        line={"color": colour, "width": 2.5, "dash": dash},
        marker={"color": colour, "size": 9, "symbol": symbol},
        hovertemplate=f"{name}, length %{{x}}: %{{y:.3s}} operations<extra></extra>",
    )
