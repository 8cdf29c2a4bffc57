"""What a request's cache holds after each call: tensors that grow, and blocks that fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    CALCULATED,
    KV_CACHE,
    MEASURED,
    graph_objects,
    legend_below,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.forward_calls import ForwardCall

KIB = 1024
PLOT_PIXELS = 260


def cache_growth(
    theirs: Sequence[ForwardCall],
    ours: Sequence[ForwardCall],
    token_bytes: int,
    title: str = "How much does each cache hold after each call?",
) -> go.Figure:
    """Memory over the tokens held: past_key_values as marks on the formula's line, the engine's
    blocks as steps.

    Args:
        theirs, ours: the calls of transformers and of the engine for one request.
        token_bytes: keys and values of one token in all layers, by formula.

    Raises:
        ValueError: no calls, or not as many of each.
    """
    if not theirs or len(theirs) != len(ours):
        raise ValueError(
            f"cache_growth needs as many calls of each side, not {len(theirs)} and {len(ours)}."
        )
    figure = new_figure(title, height=PLOT_PIXELS + 150)
    held = [call.held for call in theirs]
    figure.add_trace(_formula(held, token_bytes))
    figure.add_trace(_tensors(theirs))
    figure.add_trace(_blocks(ours))
    legend_below(figure, PLOT_PIXELS)
    figure.update_xaxes(title_text="tokens held")
    figure.update_yaxes(title_text="KV memory (KiB)", rangemode="tozero")
    return figure


def _formula(held: Sequence[int], token_bytes: int) -> Any:
    return graph_objects().Scatter(
        name="2 x layers x KV heads x head dim x bytes x tokens (calculated)",
        x=list(held),
        y=[tokens * token_bytes / KIB for tokens in held],
        mode="lines",
        line={"color": CALCULATED.colour, "width": 2, "dash": "dash"},
        hovertemplate="%{x} tokens: %{y:.1f} KiB<extra>calculated</extra>",
    )


def _tensors(calls: Sequence[ForwardCall]) -> Any:
    return graph_objects().Scatter(
        name="past_key_values: its tensors",
        x=[call.held for call in calls],
        y=[call.kv_bytes / KIB for call in calls],
        mode="markers",
        marker={"color": MEASURED.colour, "size": 8, "symbol": "circle"},
        hovertemplate="%{x} tokens: %{y:.1f} KiB<extra>past_key_values</extra>",
    )


def _blocks(calls: Sequence[ForwardCall]) -> Any:
    return graph_objects().Scatter(
        name="the engine: its blocks",
        x=[call.held for call in calls],
        y=[call.kv_bytes / KIB for call in calls],
        mode="lines+markers",
        line={"color": KV_CACHE.colour, "width": 2.5, "shape": "hv"},
        marker={"color": KV_CACHE.colour, "size": 7, "symbol": "square-open"},
        hovertemplate="%{x} tokens: %{y:.1f} KiB in blocks<extra>the engine</extra>",
    )
