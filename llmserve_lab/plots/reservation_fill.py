"""What becomes of equal reservations: a bar a request, from its prompt to what stays empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from llmserve_lab.plots.theme import (
    DECODE,
    PREFILL,
    WASTE,
    Mark,
    bar_style,
    graph_objects,
    legend_below,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

PLOT_PIXELS = 300
AROUND = 150  # title above, axis and legend below
EMPTY = Mark(WASTE.colour, WASTE.pattern, "reserved, never used")
PROMPT = Mark(PREFILL.colour, PREFILL.pattern, "prompt")
ANSWER = Mark(DECODE.colour, DECODE.pattern, "answer")


class Sized(Protocol):
    """A request whose lengths are known."""

    @property
    def prompt_token_ids(self) -> Sequence[int]: ...

    @property
    def num_output_tokens(self) -> int: ...


def reservation_fill(
    requests: Sequence[Sized],
    reserved: int,
    title: str = "How much of its reservation does each request ever fill?",
) -> go.Figure:
    """Requests from the shortest to the longest. reserved: tokens, the same for each.

    Raises:
        ValueError: no requests, or one that is longer than its reservation.
    """
    if not requests:
        raise ValueError("reservation_fill needs at least one request.")
    sizes = sorted(
        ((len(r.prompt_token_ids), r.num_output_tokens) for r in requests), key=sum
    )  # fmt: skip
    if sum(sizes[-1]) > reserved:
        raise ValueError(f"A request of {sum(sizes[-1])} tokens does not fit into {reserved}.")
    figure = new_figure(title, PLOT_PIXELS + AROUND)
    figure.add_trace(_bars(PROMPT, [prompt for prompt, _ in sizes]))
    figure.add_trace(_bars(ANSWER, [answer for _, answer in sizes]))
    figure.add_trace(_bars(EMPTY, [reserved - sum(size) for size in sizes]))
    figure.update_layout(barmode="stack", bargap=0.1, legend_traceorder="normal")
    legend_below(figure, PLOT_PIXELS)
    figure.update_xaxes(title_text="request, shortest first", showgrid=False)
    figure.update_yaxes(title_text="tokens", range=[0, reserved])
    figure.update_layout(meta={"alt": _in_words(title, sizes, reserved)})
    return figure


def _bars(mark: Mark, counts: list[int]) -> Any:
    return graph_objects().Bar(
        name=mark.label,
        x=list(range(1, len(counts) + 1)),
        y=counts,
        marker=bar_style(mark),
        hovertemplate=f"request %{{x}}: {mark.label} %{{y}} tokens<extra></extra>",
    )


def _in_words(title: str, sizes: list[tuple[int, int]], reserved: int) -> str:
    lengths = [sum(size) for size in sizes]
    share = sum(lengths) / (reserved * len(lengths))
    return (
        f"{title} {len(lengths)} requests of {lengths[0]} to {lengths[-1]} tokens, half of them "
        f"below {lengths[len(lengths) // 2]}, in reservations of {reserved}: "
        f"{share:.0%} of the reserved slots are ever used."
    )
