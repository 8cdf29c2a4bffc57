"""The lines of generate beside the formulas, step by step, with what ran on two sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper, stops
from llmserve_lab.plots.theme import (
    DECODE,
    FONT,
    NEUTRAL,
    PREFILL,
    Mark,
    graph_objects,
    new_figure,
    translucent,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.forward_calls import ForwardCall
    from llmserve_lab.engine.work import ModelWork

CODE = (
    ("out = model(prompt)", "T<sub>prefill</sub>"),
    ("token = out.logits[:, -1].argmax(-1)", "p(x<sub>1</sub> | prompt)"),
    ("while len(tokens) < k:", ""),
    ("    out = model(token, past_key_values=out.past_key_values)", "in T<sub>decode</sub>"),
    ("    token = out.logits[:, -1].argmax(-1)", "p(x<sub>t</sub> | x<sub><t</sub>)"),
)
PREFILL_LINES, DECODE_LINES = (0, 1), (3, 4)
QUANTITIES = (
    "shape of the input ids",
    "tokens in the cache",
    "KV memory held",
    "operations (calculated)",
    "bytes moved (calculated)",
)
SIDES = ("transformers", "our engine")
MONOSPACE = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
NAME_AT, FORMULA_AT = 0.0, 0.80  # of the width: where a column begins
SIDE_AT = (0.40, 0.72)
HEIGHT, ROW_GAP = 500, 1  # pixels; rows between code and numbers
KIB = 1024


def generate_steps(
    theirs: Sequence[ForwardCall],
    ours: Sequence[ForwardCall],
    tokens: Sequence[str],
    work: ModelWork,
    title: str = "Which line runs, and on which shapes?",
) -> go.Figure:
    """A slider goes through the forward passes of one request: the lines that run are marked, and
    below stands what went into the model on each side.

    Args:
        theirs, ours: the calls of transformers and of the engine, from one request without padding.
        tokens: the text of the token that each pass gave.
        work: counts the operations and bytes of a pass.

    Raises:
        ValueError: no calls, or not as many of each.
    """
    if not theirs or not len(theirs) == len(ours) == len(tokens):
        raise ValueError(
            f"generate_steps needs a call of each side for each token, not {len(theirs)}, "
            f"{len(ours)} and {len(tokens)}."
        )
    figure = new_figure(title, HEIGHT)
    stepper = Stepper(figure)
    stepper.always(_code())
    stepper.always(_names())
    for index in stops(len(theirs)):
        numbers = _numbers((theirs[index], ours[index]), work)
        label = f"{index + 1} of {len(theirs)}: gives token {index + 1}, {tokens[index]!r}"
        stepper.stop(label, [(_marked(index), {}), (numbers, {})])
    rows = len(CODE) + ROW_GAP + 1 + len(QUANTITIES)
    hidden = {"showticklabels": False, "showgrid": False, "ticks": "", "zeroline": False}
    figure.update_xaxes(range=[-0.01, 1.01], fixedrange=True, **hidden)
    figure.update_yaxes(range=[rows - 0.4, -0.6], fixedrange=True, **hidden)
    figure.update_layout(showlegend=False, bargap=0, margin={"l": 8, "r": 8, "t": 56, "b": 104})
    figure.update_layout(meta={"alt": _in_words(title, theirs, ours, tokens)})
    return stepper.finish(start=0, below=16, prefix="call ")


def _code() -> Any:
    """The listing, with the formula of each line."""
    code = [_unfolded(line) for line, _ in CODE]
    formulas = [formula for _, formula in CODE]
    rows = list(range(len(CODE)))
    return _texts(
        [NAME_AT] * len(CODE) + [FORMULA_AT] * len(CODE), rows + rows, code + formulas,
        [MONOSPACE] * len(CODE) + [None] * len(CODE),
    )  # fmt: skip


def _names() -> Any:
    """What stands in the rows and columns of the numbers."""
    first = len(CODE) + ROW_GAP
    rows = [first + 1 + i for i in range(len(QUANTITIES))]
    heads = [f"<b>{side}</b>" for side in SIDES]
    return _texts(
        [NAME_AT] * len(rows) + list(SIDE_AT), rows + [first] * len(SIDES),
        [*QUANTITIES, *heads], [None] * (len(rows) + len(SIDES)),
    )  # fmt: skip


def _numbers(calls: Sequence[ForwardCall], work: ModelWork) -> Any:
    first = len(CODE) + ROW_GAP + 1
    texts, across, down = [], [], []
    for place, call in zip(SIDE_AT, calls, strict=True):
        texts += _column(call, work)
        across += [place] * len(QUANTITIES)
        down += [first + row for row in range(len(QUANTITIES))]
    return _texts(across, down, texts, [MONOSPACE] * len(texts))


def _column(call: ForwardCall, work: ModelWork) -> list[str]:
    count = call.num_tokens
    pairs = sum(place + 1 for row in call.positions for place in row)
    operations = work.linear_flops(count, 1) + work.attention_flops(pairs)
    moved = work.weights_read(count, 1) + (call.held + count) * work.kv_bytes
    shape = ", ".join(map(str, call.shape)) + ("," if len(call.shape) == 1 else "")
    return [
        f"({shape})",
        f"{call.cached} -> {call.held}",
        f"{call.kv_bytes / KIB:,.0f} KiB",
        f"{operations / 1e6:,.1f} million",
        f"{moved / KIB:,.0f} KiB",
    ]


def _marked(index: int) -> Any:
    """A bar behind the lines that run: the prefill's, or those of the loop."""
    mark: Mark = DECODE if index else PREFILL
    lines = DECODE_LINES if index else PREFILL_LINES
    return graph_objects().Bar(
        name=mark.label,
        orientation="h",
        base=0,
        x=[1] * len(lines),
        y=list(lines),
        width=1,
        marker={"color": translucent(mark.colour, 0.14), "line": {"width": 0}},
        text=[f"<b>{mark.label}</b>", ""],
        textposition="inside",
        insidetextanchor="end",
        textfont={"color": NEUTRAL},
        hoverinfo="skip",
    )


def _texts(
    across: Sequence[float], down: Sequence[int], texts: Sequence[str], fonts: Sequence[str | None]
) -> Any:
    families = [font or FONT for font in fonts]
    return graph_objects().Scatter(
        x=list(across),
        y=list(down),
        mode="text",
        text=list(texts),
        textposition="middle right",
        textfont={"family": families, "size": 12, "color": NEUTRAL},
        hoverinfo="skip",
        cliponaxis=False,
    )


def _unfolded(line: str) -> str:
    """With spaces that plotly does not fold into one."""
    return line.replace(" ", "\u00a0")


def _in_words(
    title: str, theirs: Sequence[ForwardCall], ours: Sequence[ForwardCall], tokens: Sequence[str]
) -> str:
    parts = [title]
    for index in (0, len(theirs) - 1):
        stage = DECODE.label if index else PREFILL.label
        parts.append(
            f"Call {index + 1}, {stage}: transformers gets ids of shape {theirs[index].shape} and "
            f"then holds {theirs[index].held} tokens, the engine {ours[index].shape} and "
            f"{ours[index].held}; token {tokens[index]!r} comes."
        )
    return " ".join([*parts, f"A slider steps through {len(theirs)} calls."])
