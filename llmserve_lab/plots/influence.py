"""What changing one token does to the predictions at every place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import DECODE, NEUTRAL, bar_style, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT = 400
HEADROOM = 1.15
SAME = 1e-4  # what rounding may change


def influence(
    changes: Mapping[int, Sequence[float]],
    texts: Sequence[str],
    title: str = "Which predictions change when one token changes?",
) -> go.Figure:
    """A bar per place: the largest change of any logit there. A slider steps through the places
    whose token was changed.

    Args:
        changes: place of the changed token -> largest logit change at each place.
        texts: the tokens' texts.

    Raises:
        ValueError: nothing was changed, or not one number for each token.
    """
    if not changes or any(len(row) != len(texts) for row in changes.values()):
        raise ValueError("influence needs at least one changed place, and a number for each token.")
    figure = new_figure(title, HEIGHT)
    stepper = Stepper(figure)
    labels = []
    for place, row in changes.items():
        same = sum(value < SAME for value in row)
        labels.append(f"{place + 1} ({texts[place]!r}): {same} predictions as before, "
                      f"{len(row) - same} changed")  # fmt: skip
        stepper.stop(labels[-1], [(_bars(row, texts), {}), (_mark(place, changes), {})])
    top = HEADROOM * max(max(row) for row in changes.values())
    figure.update_xaxes(title_text="place in the text (tokens)", range=[0.3, len(texts) + 0.7])
    figure.update_yaxes(title_text="largest change of a logit there", range=[0, top])
    figure.update_layout(margin={"b": 128}, bargap=0.15)
    spoken = [f"Changed token {label}." for label in labels]
    figure.update_layout(meta={"alt": " ".join([title, *spoken])})
    return stepper.finish(start=len(labels) // 2, below=58, prefix="changed token ")


def _bars(row: Sequence[float], texts: Sequence[str]) -> Any:
    return graph_objects().Bar(
        name="change of the prediction after this token",
        x=list(range(1, len(row) + 1)),
        y=list(row),
        customdata=[repr(text) for text in texts],
        marker=bar_style(DECODE),
        hovertemplate="after token %{x}, %{customdata}: %{y:.3g}<extra></extra>",
    )


def _mark(place: int, changes: Mapping[int, Sequence[float]]) -> Any:
    top = max(max(row) for row in changes.values())
    return graph_objects().Scatter(
        name="the changed token",
        x=[place + 1, place + 1],
        y=[0, top * HEADROOM],
        mode="lines",
        line={"color": NEUTRAL, "width": 2, "dash": "dash"},
        hoverinfo="skip",
    )
