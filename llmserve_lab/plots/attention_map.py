"""The attention map: how much each token of a prompt takes from each token before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import FREE, MEASURED, NEUTRAL, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT = 560
CELL = 0.92  # of the distance between two cells
LONGEST_NAME = 10  # characters of a token's text beside the map


def attention_map(
    weights: Any,
    texts: Sequence[str],
    title: str = "Which earlier tokens does each token take from?",
) -> go.Figure:
    """A cell per query and key, filled as far as the weight; the future, which the mask forbids,
    has no cells. A slider steps through the heads.

    Args:
        weights: (heads, tokens, tokens), rows that sum to 1: an array or a CPU tensor.
        texts: the tokens' texts.

    Raises:
        ValueError: not one text for each token, or not as many queries as keys.
    """
    heads, queries, keys = weights.shape
    if not queries == keys == len(texts):
        raise ValueError(
            f"attention_map needs a text for each token: {len(texts)} texts do not name the rows "
            f"and columns of weights of shape {tuple(weights.shape)}."
        )
    figure = new_figure(title, HEIGHT)
    stepper = Stepper(figure)
    stepper.always(_cells(texts))
    rows = weights.tolist()
    for head in range(heads):
        name = f"{head + 1} of {heads}; its widest look is at {_widest(rows[head], texts)}"
        stepper.stop(name, [(_weights(rows[head], texts), {})])
    _layout(figure, texts)
    figure.update_layout(meta={"alt": _in_words(title, rows, texts)})
    return stepper.finish(start=0, below=86, prefix="head ")


def _cells(texts: Sequence[str]) -> Any:
    """An empty cell for each query and key that it may see."""
    places = _places(len(texts))
    return _bars(places, [CELL] * len(places), FREE, hoverinfo="skip")


def _weights(rows: list[list[float]], texts: Sequence[str]) -> Any:
    """Each cell, filled from the left as far as its weight."""
    places = _places(len(texts))
    shares = [rows[query][key] for query, key in places]
    words = [
        f"{texts[query]!r} takes {share:.1%} from {texts[key]!r}"
        for (query, key), share in zip(places, shares, strict=True)
    ]
    return _bars(
        places, [CELL * share for share in shares], MEASURED.colour,
        customdata=words, hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


def _places(count: int) -> list[tuple[int, int]]:
    return [(query, key) for query in range(count) for key in range(query + 1)]


def _bars(places: list[tuple[int, int]], widths: list[float], colour: str, **hover: Any) -> Any:
    return graph_objects().Bar(
        orientation="h",
        y=[query for query, _ in places],
        base=[key - CELL / 2 for _, key in places],
        x=widths,
        width=CELL,
        marker={"color": colour, "line": {"width": 0}},
        showlegend=False,
        **hover,
    )


def _layout(figure: go.Figure, texts: Sequence[str]) -> None:
    names = [_short(text) for text in texts]
    last = len(texts) - 0.5
    figure.update_layout(margin={"b": 172, "l": 110, "t": 64}, barmode="overlay", bargap=0)
    figure.update_xaxes(
        title_text="key: the token looked at (filled as far as its weight)",
        tickvals=list(range(len(texts))), ticktext=names, tickangle=-60,
        range=[-0.5, last], showgrid=False,
    )  # fmt: skip
    figure.update_yaxes(
        title_text="query: the token that looks",
        tickvals=list(range(len(texts))), ticktext=names, range=[last, -0.5], showgrid=False,
    )  # fmt: skip
    figure.add_annotation(
        text="masked: the future", x=0.75, y=0.78, xref="paper", yref="paper", showarrow=False,
        font={"size": 13, "color": NEUTRAL},
    )  # fmt: skip


def _short(text: str) -> str:
    name = repr(text)[1:-1].replace(" ", "\u00b7")
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "\u2026"


def _widest(rows: list[list[float]], texts: Sequence[str]) -> str:
    """The query whose largest weight is smallest: it takes a little from everywhere."""
    query = min(range(1, len(rows)), key=lambda q: max(rows[q]), default=0)
    return f"{texts[query]!r}, at most {max(rows[query]):.0%} from one token"


def _in_words(title: str, heads: list[list[list[float]]], texts: Sequence[str]) -> str:
    """The alternative text: for each head, what the last token takes most from."""
    parts = [title, f"{len(texts)} tokens; the half of the map above the diagonal is empty."]
    for number, rows in enumerate(heads, start=1):
        key = max(range(len(texts)), key=lambda k: rows[-1][k])
        parts.append(
            f"Head {number}: the last token takes {rows[-1][key]:.0%} from {texts[key]!r}; "
            f"the widest look is at {_widest(rows, texts)}."
        )
    return " ".join(parts)
