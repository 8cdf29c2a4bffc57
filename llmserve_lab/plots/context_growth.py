"""One request's KV cache over its context, for several models, against their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import graph_objects, legend_below, new_figure, owner_colour

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROOM_RIGHT = 1.5  # times the longest context, for the last label
CONTEXTS = tuple(2**power for power in range(9, 22))  # 512 to 2 Mi tokens
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x")
GIB = 2**30
PLOT_PIXELS = 300


def context_growth(
    models: Mapping[str, tuple[float, float]],
    contexts: Sequence[int] = CONTEXTS,
    title: str = "When does one KV cache outweigh the model?",
) -> go.Figure:
    """A line per model, on logarithmic axes, and a mark where it reaches the model's weights. All
    of it is calculated.

    Args:
        models: name -> (bytes of the weights, bytes of KV per token).

    Raises:
        ValueError: no models, or a size that is not above 0.
    """
    if not models:
        raise ValueError("context_growth needs at least one model.")
    figure = new_figure(f"{title} (calculated)", height=PLOT_PIXELS + 170)
    lowest, places = min(each for _, each in models.values()), ("top left", "bottom right")
    for index, (name, (weights, per_token)) in enumerate(models.items()):
        if weights <= 0 or per_token <= 0:
            raise ValueError(f"{name}: weights and KV per token must be above 0 bytes.")
        figure.add_trace(_line(index, name, per_token, contexts))
        if contexts[0] <= weights / per_token <= contexts[-1]:
            crossing = _crossing(index, name, weights, per_token)
            # under the lowest line there is room for its label, above it another line
            figure.add_trace(crossing.update(textposition=places[per_token == lowest]))
    legend_below(figure, PLOT_PIXELS)
    figure.update_xaxes(
        title_text="context (tokens)", type="log", tickvals=list(contexts[::2]),
        ticktext=[_short(context) for context in contexts[::2]], minor={"ticks": ""},
        range=[log10(contexts[0]), log10(ROOM_RIGHT * contexts[-1])],
    )  # fmt: skip
    figure.update_yaxes(title_text="KV cache of one request (GiB)", type="log", dtick=1)
    figure.update_layout(meta={"alt": _in_words(f"{title} (calculated)", models)})
    return figure


def _line(index: int, name: str, per_token: float, contexts: Sequence[int]) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=list(contexts),
        y=[context * per_token / GIB for context in contexts],
        mode="lines",
        line={"color": owner_colour(index), "width": 2.5, "dash": DASHES[index % len(DASHES)]},
        hovertemplate=f"{name}, %{{x:,}} tokens: %{{y:.3g}} GiB<extra>calculated</extra>",
    )


def _crossing(index: int, name: str, weights: float, per_token: float) -> Any:
    tokens = round(weights / per_token)
    return graph_objects().Scatter(
        name=f"{name}: as much as its weights",
        x=[tokens],
        y=[weights / GIB],
        mode="markers+text",
        text=[f"{tokens / 1e6:.1f}M" if tokens >= 1e6 else f"{tokens / 1e3:.0f}k"],
        marker={"symbol": MARKERS[index % len(MARKERS)], "size": 11, "color": owner_colour(index)},
        showlegend=False,
        hovertemplate=f"{name}: {tokens:,} tokens weigh {weights / GIB:.3g} GiB, as much as its "
        "weights<extra>calculated</extra>",
    )


def _in_words(title: str, models: Mapping[str, tuple[float, float]]) -> str:
    each = " ".join(
        f"{name}: {per_token / 1024:.3g} KiB a token, as much as its weights at "
        f"{weights / per_token:,.0f} tokens."
        for name, (weights, per_token) in models.items()
    )
    return f"{title} {each}"


def _short(context: int) -> str:
    for unit, name in ((2**20, "M"), (2**10, "k")):
        if context >= unit:
            return f"{context // unit}{name}"
    return str(context)
