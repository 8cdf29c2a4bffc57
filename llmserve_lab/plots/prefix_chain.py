"""Two prompts block by block, with their chained hashes: what of the second is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import (
    GRID,
    KV_CACHE,
    NEUTRAL,
    PREFILL,
    REJECTED,
    SHARED,
    Mark,
    bar_style,
    graph_objects,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.lookup import Lookup

HEIGHT = 400
MONOSPACE = "ui-monospace, 'SFMono-Regular', Menlo, Consolas, monospace"
FIRST, THIS = 3.0, 1.0  # heights of the two rows
BAR, BELOW = 0.9, 0.75  # thickness of a row; its hashes stand so far below it
CELL = 0.94  # of a block's width; the rest is a gap


def prefix_chain(
    first: Lookup,
    others: Sequence[Lookup],
    title: str = "How much of a cached prompt is found again?",
) -> go.Figure:
    """The first prompt's blocks above, another prompt's below, each with its chained hash; a
    slider goes through the other prompts. Found blocks, computed ones and changed tokens are told
    apart by pattern and label.

    Raises:
        ValueError: no other prompt, or block sizes that differ.
    """
    if not others or any(other.block_size != first.block_size for other in others):
        raise ValueError("prefix_chain needs one more prompt at least, in blocks of one size.")
    figure = new_figure(title, HEIGHT)
    stepper = Stepper(figure)
    stepper.always(_row("in the cache", KV_CACHE, FIRST, 0, first.num_tokens, first))
    stepper.always(_hashes(first, FIRST))
    for other in others:
        stepper.stop(_label(other), [(trace, {}) for trace in _traces(first, other)])
    longest = max(lookup.num_tokens for lookup in (first, *others))
    figure.update_layout(barmode="overlay", margin={"t": 92, "b": 112}, showlegend=True)
    figure.update_xaxes(
        title_text="position in the prompt (tokens)", range=[0, longest], dtick=first.block_size,
        showgrid=False,
    )  # fmt: skip
    figure.update_yaxes(
        title_text="prompt", range=[-0.3, FIRST + 0.7], showgrid=False, ticks="",
        tickvals=[FIRST, THIS], ticktext=["first", "this"], ticklabelstandoff=6,
    )  # fmt: skip
    figure.update_layout(meta={"alt": _in_words(title, first, others)})
    return stepper.finish(start=len(others) // 2, prefix="")


def _traces(first: Lookup, other: Lookup) -> list[Any]:
    changed = [
        place
        for place, (a, b) in enumerate(zip(first.token_ids, other.token_ids, strict=False))
        if a != b
    ]
    return [
        _row("found", SHARED, THIS, 0, other.hits, other),
        _row("computed", PREFILL, THIS, other.hits, other.num_tokens, other),
        _hashes(other, THIS),
        _changes(changed),
    ]


def _row(name: str, mark: Mark, height: float, start: int, end: int, lookup: Lookup) -> Any:
    """The blocks from token `start` to `end`, a bar each."""
    size = lookup.block_size
    edges = list(range(start, end, size))
    widths: list[float | None] = [min(size, end - edge) - size * (1 - CELL) for edge in edges]
    return graph_objects().Bar(
        name=name,
        orientation="h",
        base=edges or [0],
        x=widths or [None],
        y=[height] * max(1, len(edges)),
        width=BAR,
        marker=bar_style(mark) | {"line": {"width": 1, "color": GRID}},
        hovertemplate=f"tokens from %{{base}}: {name}<extra></extra>",
    )


def _hashes(lookup: Lookup, height: float) -> Any:
    size = lookup.block_size
    return graph_objects().Scatter(
        x=[size * (index + CELL / 2) for index in range(len(lookup.digests))],
        y=[height - BELOW] * len(lookup.digests),
        mode="text",
        text=list(lookup.digests),
        textfont={"family": MONOSPACE, "size": 11, "color": NEUTRAL},
        hoverinfo="skip",
        showlegend=False,
    )


def _changes(places: list[int]) -> Any:
    """A cross at the first token that is another one, since from there nothing is found."""
    place = [places[0] + 0.5] if places else [None]
    return graph_objects().Scatter(
        name="first token that differs",
        x=place,
        y=[THIS + BELOW],
        mode="markers",
        marker={"symbol": "x", "size": 10, "color": REJECTED.colour},
        hovertemplate="token %{x:.0f} differs<extra></extra>",
    )


def _label(lookup: Lookup) -> str:
    return f"{lookup.label}: {lookup.hits} of {lookup.num_tokens} tokens found"


def _in_words(title: str, first: Lookup, others: Sequence[Lookup]) -> str:
    each = "; ".join(map(_label, others))
    size = first.block_size
    return (
        f"{title} The cache holds a prompt of {first.num_tokens} tokens in blocks of {size}. "
        f"{each}. Behind the first block that differs every hash is another one. "
        f"A slider steps through {len(others)} prompts."
    )
