"""Guessing ahead: what each pass of the large model kept of the guess, and what it threw away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    DECODE,
    REJECTED,
    SHARED,
    Mark,
    bar_style,
    graph_objects,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT = 380


def draft_passes(
    kept: Sequence[int],
    guessed: int,
    title: str = "How many tokens did each pass of the large model give?",
) -> go.Figure:
    """A bar per pass: guessed tokens that were right, the large model's own one, guessed tokens
    that were wrong or came after a wrong one.

    Args:
        kept: guessed tokens that each pass kept.
        guessed: tokens that each pass was given to check.

    Raises:
        ValueError: no pass, or one that kept more than was guessed.
    """
    if not kept or not all(0 <= count <= guessed for count in kept):
        raise ValueError(f"draft_passes needs passes that each kept 0 to {guessed} guessed tokens.")
    figure = new_figure(title, HEIGHT)
    own = [1] * len(kept)
    wrong = [-(guessed - count) for count in kept]
    for mark, name, counts in (
        (SHARED, "guessed, kept", list(kept)),
        (DECODE, "the large model's own", own),
        (REJECTED, "guessed, thrown away", wrong),
    ):
        figure.add_trace(_bars(mark, name, counts))
    figure.update_layout(barmode="relative", bargap=0.15)
    figure.update_xaxes(title_text="pass of the large model", range=[0.4, len(kept) + 0.6])
    ticks = list(range(-guessed, guessed + 2))
    figure.update_yaxes(
        title_text="tokens: given (up), wasted (down)",
        tickvals=ticks, ticktext=[abs(tick) for tick in ticks],
    )  # fmt: skip
    total = sum(kept) + len(kept)
    figure.update_layout(
        meta={
            "alt": f"{title} {len(kept)} passes gave {total} tokens: {sum(kept)} guessed and kept, "
            f"{len(kept)} of the large model's own; {-sum(wrong)} guessed tokens were thrown away."
        }
    )
    return figure


def _bars(mark: Mark, name: str, counts: list[int]) -> Any:
    return graph_objects().Bar(
        name=name,
        x=list(range(1, len(counts) + 1)),
        y=counts,
        customdata=[abs(count) for count in counts],
        marker=bar_style(mark),
        hovertemplate="pass %{x}: %{customdata} " + name + "<extra></extra>",
    )
