"""Computing all places at once: which of them each pass has right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper, stops
from llmserve_lab.plots.theme import (
    NEUTRAL,
    REJECTED,
    SHARED,
    Mark,
    bar_style,
    graph_objects,
    legend_below,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW_PIXELS, BASE_PIXELS = 15, 250
TEXT_CHARACTERS = 40  # of the text above the slider: more would leave a narrow page
RIGHT = Mark(SHARED.colour, "", "as in the end")
WRONG = Mark(REJECTED.colour, REJECTED.pattern, "still another token")


def parallel_guesses(
    passes: Sequence[Sequence[int]],
    texts: Sequence[str],
    title: str = "Which places are right after each pass over all of them?",
) -> go.Figure:
    """A row of cells per pass, a cell per place. A slider goes through the passes and shows the
    text as it is then.

    Args:
        passes: the tokens after each pass, the last one final.
        texts: the text after each pass.

    Raises:
        ValueError: no passes, passes of different lengths, or not one text for each.
    """
    if not passes or len({len(row) for row in passes}) > 1 or len(passes) != len(texts):
        raise ValueError("parallel_guesses needs passes over the same places, and a text for each.")
    figure = new_figure(title, BASE_PIXELS + ROW_PIXELS * len(passes))
    stepper = Stepper(figure)
    for mark, is_right in ((RIGHT, True), (WRONG, False)):
        stepper.always(_cells(passes, mark, is_right))
    for index in stops(len(passes)):
        right = sum(map(_same, passes[index], passes[-1]))
        told = f"{right} of {len(passes[0])} as in the end"
        label = f"{index + 1}: {told}: {_beginning(texts[index])}"
        stepper.stop(label, [(_frame(index, len(passes[0])), {})])
    figure.update_layout(barmode="overlay", bargap=0.08)
    figure.update_xaxes(title_text="place in the answer", range=[0.4, len(passes[0]) + 0.6])
    figure.update_yaxes(
        title_text="pass", range=[len(passes) + 0.6, 0.4], showgrid=False, rangemode="normal"
    )
    legend_below(figure, ROW_PIXELS * len(passes))
    figure.update_layout(margin={"b": 150}, meta={"alt": _in_words(title, passes)})
    return stepper.finish(start=min(2, len(stepper.labels) - 1), below=88, prefix="after pass ")


def _same(token: int, final: int) -> bool:
    return token == final


def _cells(passes: Sequence[Sequence[int]], mark: Mark, is_right: bool) -> Any:
    """Bars of width one, from place - 0.5 on."""
    cells: list[tuple[int | None, int | None]] = [
        (place + 1, index + 1)
        for index, row in enumerate(passes)
        for place, token in enumerate(row)
        if (token == passes[-1][place]) is is_right
    ] or [(None, None)]
    return graph_objects().Bar(
        name=mark.label,
        orientation="h",
        base=[None if place is None else place - 0.46 for place, _ in cells],
        x=[None if place is None else 0.92 for place, _ in cells],
        y=[row for _, row in cells],
        customdata=[place for place, _ in cells],
        marker=bar_style(mark),
        hovertemplate=f"pass %{{y}}, place %{{customdata}}: {mark.label}<extra></extra>",
    )


def _frame(index: int, places: int) -> Any:
    left, right, top, bottom = 0.5, places + 0.5, index + 0.5, index + 1.5
    return graph_objects().Scatter(
        x=[left, right, right, left, left],
        y=[top, top, bottom, bottom, top],
        mode="lines",
        line={"color": NEUTRAL, "width": 2},
        showlegend=False,
        hoverinfo="skip",
    )


def _in_words(title: str, passes: Sequence[Sequence[int]]) -> str:
    counts = [sum(map(_same, row, passes[-1])) for row in passes]
    told = ", ".join(map(str, counts))
    return f"{title} {len(passes)} passes over {len(passes[0])} places; right after each: {told}."


def _beginning(text: str) -> str:
    """As Python writes it, cut where it is too long."""
    written = repr(text)
    return written if len(written) <= TEXT_CHARACTERS else f"{written[: TEXT_CHARACTERS - 3]}..."
