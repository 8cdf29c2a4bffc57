"""How far the cached keys and values of the same tokens are from each other, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    KV_CACHE,
    Mark,
    bar_style,
    graph_objects,
    legend_below,
    template,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

PLOT_PIXELS = 260
KINDS = (("keys", KV_CACHE), ("values", Mark(KV_CACHE.colour, "", "values")))


def layer_distance(
    cases: Mapping[str, Sequence[tuple[float, float]]],
    title: str = "Where do the same tokens have the same keys and values?",
) -> go.Figure:
    """A panel for each case, a pair of bars for each layer.

    Args:
        cases: name -> (distance of the keys, of the values) of each layer, as a share: 0 is equal.

    Raises:
        ValueError: no case, or one without layers.
    """
    if not cases or not all(cases.values()):
        raise ValueError("layer_distance needs at least one case, and one layer in each.")
    figure = _panels(title, cases)
    for column, layers in enumerate(cases.values(), start=1):
        for place, (kind, mark) in enumerate(KINDS):
            percent = [100 * layer[place] for layer in layers]
            figure.add_trace(_bars(kind, mark, percent, column == 1), row=1, col=column)
    figure.update_layout(meta={"alt": _in_words(title, cases)})
    return figure


def _bars(kind: str, mark: Mark, percent: list[float], named: bool) -> Any:
    return graph_objects().Bar(
        name=kind,
        x=list(range(len(percent))),
        y=percent,
        marker=bar_style(mark),
        text=["equal" if value < 0.5 else "" for value in percent],
        textposition="outside",
        textangle=-90,
        textfont={"size": 11},
        constraintext="none",  # else the words shrink with a narrow page's bars
        cliponaxis=False,
        hovertemplate=f"layer %{{x}}, {kind}: %{{y:.2g}}% apart<extra></extra>",
        showlegend=named,
        legendgroup=kind,
    )


def _panels(title: str, cases: Mapping[str, Sequence[tuple[float, float]]]) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=1, cols=len(cases), shared_yaxes=True, horizontal_spacing=0.06,
        subplot_titles=list(cases),
    )  # fmt: skip
    figure.update_layout(
        template=template(), title_text=title, height=PLOT_PIXELS + 190, autosize=True
    )
    legend_below(figure, PLOT_PIXELS)
    figure.update_layout(margin={"t": 88})
    figure.update_annotations(font={"size": 12})
    figure.update_xaxes(title_text="layer", dtick=1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="apart (% of their size)", row=1, col=1)
    return figure


def _in_words(title: str, cases: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    told = []
    for name, layers in cases.items():
        each = ", ".join(
            f"layer {index}: keys {100 * keys:.0f}%, values {100 * values:.0f}%"
            for index, (keys, values) in enumerate(layers)
        )
        told.append(f"{name}: {each} apart.")
    return " ".join([title, *told])
