"""A learner's beliefs before the runs, and the answers after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import (
    GUESS,
    MEASURED,
    NEUTRAL,
    graph_objects,
    legend_below,
    or_nothing,
    template,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.belief_change import BeliefChange

ROW_PIXELS, BASE_PIXELS = 46, 250
OUTCOMES = ("none yet", "not right yet", "right later", "right at once")
NOTHING = "no belief recorded yet:<br>answer the cards of this chapter,<br>then run this cell again"
SYMBOLS = {"agree": "triangle-right", "partly": "diamond", "disagree": "triangle-left"}


def belief_shift(
    changes: Sequence[BeliefChange],
    title: str = "What did you believe, and what can you answer?",
) -> go.Figure:
    """A row per belief: on the left how far it was held (100 is surely right), on the right how the
    question after it was answered. A slider goes through the beliefs and says both in words.

    Raises:
        ValueError: no beliefs.
    """
    if not changes:
        raise ValueError("belief_shift needs at least one belief.")
    height = BASE_PIXELS + ROW_PIXELS * len(changes)
    figure = _panels(title, [change.label for change in changes], height)
    stepper = Stepper(figure)
    stepper.always(_before(changes), row=1, col=1)
    stepper.always(_after(changes), row=1, col=2)
    for change in changes:
        label = f"{change.label}: before: {change.before}; after: {change.after}"
        stepper.stop(label, _rings(change))
    if all(change.held is None for change in changes):
        figure.add_annotation(
            text=NOTHING, x=50, y=(len(changes) - 1) / 2, showarrow=False, row=1, col=1
        )
    legend_below(figure, ROW_PIXELS * len(changes))
    figure.update_layout(margin={"b": 170}, meta={"alt": _in_words(title, changes)})
    return stepper.finish(start=0, below=96, prefix="")


def outcome(change: BeliefChange) -> str:
    """The column of `OUTCOMES` that a belief's later answer belongs to."""
    if not change.tries:
        return OUTCOMES[0]
    if not change.solved:
        return OUTCOMES[1]
    return OUTCOMES[3] if change.tries == 1 else OUTCOMES[2]


def _panels(title: str, labels: list[str], height: int) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.07)
    figure.update_layout(template=template(), title_text=title, height=height, autosize=True)
    figure.update_xaxes(
        title_text="before: held (%)", range=[-6, 106], tickvals=[0, 25, 50, 75, 100], row=1, col=1
    )
    figure.update_xaxes(
        title_text="after: the new question", range=[-0.5, len(OUTCOMES) - 0.5], tickangle=0,
        tickvals=list(range(len(OUTCOMES))), row=1, col=2,
        ticktext=[name.replace(" ", "<br>", 1) for name in OUTCOMES],
    )  # fmt: skip
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=labels[::-1])
    figure.update_yaxes(title_text="belief", row=1, col=1)
    return figure


def _before(changes: Sequence[BeliefChange]) -> Any:
    said = [change for change in changes if change.held is not None]
    return graph_objects().Scatter(
        name="your belief before",
        x=or_nothing([change.held for change in said]),
        y=[change.label for change in said] or [changes[0].label],
        customdata=[change.before for change in said],
        mode="markers",
        marker={
            "color": GUESS.colour,
            "size": 15,
            "symbol": [SYMBOLS[str(change.stance)] for change in said] or "diamond",
        },
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )


def _after(changes: Sequence[BeliefChange]) -> Any:
    places = [OUTCOMES.index(outcome(change)) for change in changes]
    return graph_objects().Scatter(
        name="your answer after",
        x=places,
        y=[change.label for change in changes],
        customdata=[change.after for change in changes],
        mode="markers",
        marker={
            "color": [MEASURED.colour if place else NEUTRAL for place in places],
            "size": 15,
            "symbol": ["circle-open" if place < 2 else "circle" for place in places],
        },
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )


def _rings(change: BeliefChange) -> list[tuple[Any, dict[str, Any]]]:
    """Round the marks of the belief that the slider stands on."""
    places = [(1, change.held), (2, OUTCOMES.index(outcome(change)))]
    return [
        (_ring(place, change.label), {"row": 1, "col": column})
        for column, place in places
        if place is not None
    ]


def _ring(place: float, label: str) -> Any:
    return graph_objects().Scatter(
        x=[place],
        y=[label],
        mode="markers",
        marker={
            "symbol": "circle-open", "size": 28, "color": NEUTRAL, "line": {"width": 2},
        },
        showlegend=False,
        hoverinfo="skip",
    )  # fmt: skip


def _in_words(title: str, changes: Sequence[BeliefChange]) -> str:
    if all(change.held is None and not change.tries for change in changes):
        return f"{title} Nothing is recorded yet."
    told = [f"{change.label}: before: {change.before}; after: {change.after}" for change in changes]
    return f"{title} {'. '.join(told)}. A slider goes through them."
