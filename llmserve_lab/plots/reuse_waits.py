"""The wait for the first token over the length of a shared beginning, computed and found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import PREFILL, SHARED, Mark, graph_objects, legend_below, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

PLOT_PIXELS = 280
MS = 1000


def reuse_waits(
    computed: Mapping[int, float],
    found: Mapping[int, float],
    title: str = "How long does the first token take?",
) -> go.Figure:
    """Two lines over the length of what the prompts share.

    Args:
        computed, found: length in tokens -> seconds to the first token, without and with prefix
            caching.

    Raises:
        ValueError: no length, or others with than without.
    """
    if not computed or list(computed) != list(found):
        raise ValueError("reuse_waits needs the same lengths, computed and found.")
    figure = new_figure(title, PLOT_PIXELS + 150)
    legend_below(figure, PLOT_PIXELS)
    figure.add_trace(_line("beginning computed again", PREFILL, "dash", "diamond", computed))
    figure.add_trace(_line("beginning found in the cache", SHARED, "solid", "circle", found))
    figure.update_xaxes(title_text="shared beginning (tokens)", tickvals=list(computed))
    figure.update_yaxes(title_text="time to first token (ms)", rangemode="tozero")
    return figure


def _line(name: str, mark: Mark, dash: str, symbol: str, seconds: Mapping[int, float]) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=list(seconds),
        y=[MS * value for value in seconds.values()],
        mode="lines+markers",
        line={"color": mark.colour, "width": 2.5, "dash": dash},
        marker={"color": mark.colour, "size": 9, "symbol": symbol},
        hovertemplate=f"{name}, %{{x}} tokens: %{{y:.1f}} ms<extra></extra>",
    )
