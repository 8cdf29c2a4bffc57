"""What a batch holds after each call: a rectangle with padding, and rows without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper, stops
from llmserve_lab.plots.theme import WASTE, bar_style, graph_objects, new_figure, owner_colour

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.forward_calls import ForwardCall

ROW_PIXELS, BASE_PIXELS = 36, 250
FLAT = "our engine"


def padding_map(
    lengths: Sequence[int],
    theirs: Sequence[ForwardCall],
    ours: Sequence[ForwardCall],
    title: str = "Which of a batch's tokens are padding?",
) -> go.Figure:
    """A bar for each row of the padded batch, and one for the engine's; a slider goes through the
    calls.

    Args:
        lengths: prompt tokens of each request.
        theirs, ours: the calls of transformers, with one row a request, and of the engine.

    Raises:
        ValueError: no requests, or calls that are not of this batch.
    """
    same_rows = all(call.shape[0] == len(lengths) for call in theirs)
    if not lengths or not theirs or len(theirs) != len(ours) or not same_rows:
        raise ValueError(
            "padding_map needs requests, and as many calls of each side, all with one row for each "
            "request."
        )
    figure = new_figure(title, height=BASE_PIXELS + ROW_PIXELS * (len(lengths) + 1))
    stepper = Stepper(figure)
    for index in stops(len(theirs)):
        held, without = theirs[index].held, ours[index].held
        label = f"{index + 1}: {held} tokens held with padding, {without} without"
        bars = _bars(lengths, held // len(lengths), index)
        stepper.stop(label, [(bar, {}) for bar in bars])
    figure.update_layout(barmode="stack", margin={"t": 92, "b": 120}, showlegend=True)
    figure.update_layout(legend={"traceorder": "normal"})
    figure.update_xaxes(title_text="tokens in the cache", range=[0, ours[-1].held])
    rows = [_row(index) for index in range(len(lengths))]
    figure.update_yaxes(
        title_text="row of the batch", type="category", categoryorder="array",
        categoryarray=[FLAT, *rows[::-1]], showgrid=False,
    )  # fmt: skip
    figure.update_layout(meta={"alt": _in_words(title, lengths, theirs, ours)})
    return stepper.finish(start=0, below=52, prefix="after call ")


def _bars(lengths: Sequence[int], columns: int, call: int) -> list[Any]:
    """One trace for the padding, and one for each request on both sides. columns: of the padded
    rectangle after this call."""
    rows = [_row(index) for index in range(len(lengths))]
    tokens = [length + call for length in lengths]
    padding = [columns - own for own in tokens]
    bars = [_bar("padding", bar_style(WASTE), rows, padding, written=False)]
    for index, own in enumerate(tokens):
        style = {"color": owner_colour(index), "line": {"width": 1, "color": "white"}}
        bars.append(_bar(f"request {index}", style, [rows[index], FLAT], [own, own]))
    return bars


def _bar(
    name: str, style: dict[str, Any], rows: list[str], counts: list[int], written: bool = True
) -> Any:
    return graph_objects().Bar(
        name=name,
        orientation="h",
        y=rows,
        x=counts,
        marker=style,
        text=[f"{count}" if count and written else "" for count in counts],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        hovertemplate=f"{name}: %{{x}} tokens<extra></extra>",
    )


def _row(index: int) -> str:
    return f"padded row {index}"


def _in_words(
    title: str,
    lengths: Sequence[int],
    theirs: Sequence[ForwardCall],
    ours: Sequence[ForwardCall],
) -> str:
    told = ", ".join(map(str, lengths))
    return (
        f"{title} Prompts of {told} tokens. Padded, the batch holds {theirs[0].held} tokens after "
        f"the first call and {theirs[-1].held} after the last; the engine holds {ours[0].held} and "
        f"{ours[-1].held}. A slider steps through {len(theirs)} calls."
    )
