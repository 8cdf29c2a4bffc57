"""From the queue through the batch to tokens: one step of the engine at a time, from its trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from llmserve_lab.plots.stepping import Stepper, require_steps, stops
from llmserve_lab.plots.theme import (
    DECODE,
    NEUTRAL,
    PREFILL,
    QUEUE,
    REJECTED,
    SHARED,
    Mark,
    bar_style,
    graph_objects,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.trace import DraftView, ScheduledView, StepSnapshot, Trace

DRAFT = Mark(DECODE.colour, ".", "draft, to be checked")
LEGEND = (
    (QUEUE, "waits"),
    (PREFILL, "prompt tokens"),
    (DECODE, "the model's own token"),
    (DRAFT, "draft, to be checked"),
    (SHARED, "draft, right"),
    (REJECTED, "draft, wrong or after a wrong one"),
)
QUEUE_AT, BATCH_AT, TOKENS_AT, END = 0.0, 1.4, 7.4, 13.2  # where a column begins
HEADINGS = (
    (QUEUE_AT, "queue"),
    (BATCH_AT, "batch scheduler: this step"),
    (TOKENS_AT, "inference: tokens out"),
)
CELL, WIDTH = 1.0, 0.92
CHUNK = 4.6  # width of the longest chunk of a prompt
ROW_PIXELS, FRAME_PIXELS = 26, 236


class _Bar(NamedTuple):
    """One request's bar in the row of its number; its left end and width are in cells."""

    at: float
    width: float
    row: int
    mark: Mark
    hover: str
    text: str = ""


def _traces(bars: Sequence[_Bar]) -> list[Any]:
    """One for each meaning."""
    by_mark = {mark: [bar for bar in bars if bar.mark is mark] for mark, _ in LEGEND}
    return [_trace(mark, own) for mark, own in by_mark.items() if own]


def _trace(mark: Mark, bars: Sequence[_Bar]) -> Any:
    return graph_objects().Bar(
        orientation="h", marker=bar_style(mark, under_text=mark is PREFILL), showlegend=False,
        base=[round(bar.at, 3) for bar in bars], x=[round(bar.width, 3) for bar in bars],
        y=[bar.row for bar in bars], width=0.72,
        text=[bar.text for bar in bars], textposition="inside", insidetextanchor="middle",
        textangle=0, textfont={"color": "#FFFFFF", "size": 12}, constraintext="none",
        hovertext=[bar.hover for bar in bars], hoverinfo="text",
    )  # fmt: skip


def serving_flow(
    trace: Trace, title: str = "Who waits, what runs, and what comes out?"
) -> go.Figure:
    """A row per request, and three columns: those in the queue, the tokens that the scheduler put
    into the step, and the tokens that came of it, drafts told apart. A slider goes through the
    steps; at each the queue is as it is after the step.

    Raises:
        ValueError: the trace has no steps.
    """
    steps = require_steps(trace)
    names = _rows(steps)
    longest = max(item.num_prompt_tokens for step in steps for item in step.scheduled) or 1
    figure = new_figure(title, FRAME_PIXELS + ROW_PIXELS * len(names))
    stepper = Stepper(figure)
    for mark, label in LEGEND:
        stepper.always(_key(mark, label))
    stepper.always(_headings())
    for index in stops(len(steps)):
        bars = _step_bars(steps[index], names, longest)
        stepper.stop(_label(steps[index]), [(trace, {}) for trace in _traces(bars)])
    _layout(figure, names)
    figure.update_layout(meta={"alt": _in_words(title, steps, names)})
    return stepper.finish(start=0, below=14)


def _rows(steps: list[StepSnapshot]) -> dict[str, int]:
    """The row of each request: in the order of their numbers, which is that of arrival."""
    seen = {
        view.request_id for step in steps for view in (*step.running, *step.finished, *step.waiting)
    }
    ordered = sorted(seen, key=lambda name: (len(name), name))
    return {name: row for row, name in enumerate(ordered)}


def _step_bars(step: StepSnapshot, names: dict[str, int], longest: int) -> list[_Bar]:
    bars: list[_Bar] = []
    drafts = {view.request_id: view for view in step.drafts}
    for view in step.waiting:
        row = names[view.request_id]
        bars.append(_Bar(QUEUE_AT, WIDTH, row, QUEUE, f"request {row} waits"))
    for item in step.scheduled:
        _batch(bars, item, names[item.request_id], drafts.get(item.request_id), longest)
    for name in {token.request_id for token in step.sampled}:
        _tokens(bars, step, name, names[name], drafts.get(name))
    return bars


def _batch(
    bars: list[_Bar], item: ScheduledView, row: int, drafts: DraftView | None, longest: int
) -> None:
    """What runs of a request: prompt tokens as one bar, others as a cell each."""
    at = BATCH_AT
    if item.num_prompt_tokens:
        width = max(CELL, CHUNK * item.num_prompt_tokens / longest)
        hover = f"request {row}: {item.num_prompt_tokens} prompt tokens"
        bars.append(_Bar(at, width - 0.08, row, PREFILL, hover, f"<b>{item.num_prompt_tokens}</b>"))
        at += width
    num_drafts = drafts.num_proposed if drafts else 0
    own = item.num_tokens - item.num_prompt_tokens - num_drafts
    room = (TOKENS_AT - 0.3 - at) / max(1, own + num_drafts)
    cell = min(CELL, room)
    for place in range(own + num_drafts):
        mark = DECODE if place < own else DRAFT
        what = "its latest token" if place < own else f"draft {place - own + 1}"
        bars.append(_Bar(at + place * cell, WIDTH * cell, row, mark, f"request {row}: {what}"))


def _tokens(
    bars: list[_Bar], step: StepSnapshot, name: str, row: int, drafts: DraftView | None
) -> None:
    """What came of a request: right drafts, the model's own token, then what was thrown away."""
    new = [token for token in step.sampled if token.request_id == name]
    right = drafts.num_accepted if drafts else 0
    wrong = drafts.num_rejected if drafts else 0
    cell = min(CELL, (END - TOKENS_AT) / (len(new) + wrong))
    for place, token in enumerate(new):
        mark = SHARED if place < right else DECODE
        what = "a draft that was right" if place < right else "the model's own"
        hover = f"request {row}: {token.text!r}, {what}"
        bars.append(_Bar(TOKENS_AT + place * cell, WIDTH * cell, row, mark, hover))
    for place in range(wrong):
        at = TOKENS_AT + (len(new) + place) * cell
        bars.append(_Bar(at, WIDTH * cell, row, REJECTED, f"request {row}: a draft thrown away"))


def _key(mark: Mark, label: str) -> Any:
    """An entry of the legend."""
    return graph_objects().Bar(
        name=label, orientation="h", x=[None], y=[None], hoverinfo="skip",
        marker=bar_style(mark, under_text=mark is PREFILL),
    )  # fmt: skip


def _headings() -> Any:
    return graph_objects().Scatter(
        x=[at for at, _ in HEADINGS],
        y=[-1] * len(HEADINGS),
        mode="text",
        text=[f"<b>{heading}</b>" for _, heading in HEADINGS],
        textposition="middle right",
        textfont={"color": NEUTRAL, "size": 12},
        hoverinfo="skip",
        showlegend=False,
        cliponaxis=False,
    )


def _layout(figure: go.Figure, names: dict[str, int]) -> None:
    hidden = {"showticklabels": False, "showgrid": False, "ticks": "", "zeroline": False}
    figure.update_xaxes(range=[-0.1, END + 0.1], fixedrange=True, **hidden)
    figure.update_yaxes(
        title_text="request", tickvals=list(names.values()), showgrid=False,
        range=[len(names) - 0.4, -1.6], fixedrange=True, ticks="",
    )  # fmt: skip
    figure.update_layout(
        barmode="overlay", showlegend=True, legend_traceorder="normal",
        margin={"t": 108, "b": 96, "l": 56, "r": 8},
    )  # fmt: skip


def _label(step: StepSnapshot) -> str:
    prompt = sum(item.num_prompt_tokens for item in step.scheduled)
    drafts = sum(view.num_proposed for view in step.drafts)
    return (
        f"{step.step}: {len(step.waiting)} wait, {len(step.scheduled)} run ({prompt} prompt, "
        f"{step.num_tokens - prompt - drafts} latest, {drafts} drafts), "
        f"{len(step.sampled)} tokens out"
    )


def _in_words(title: str, steps: list[StepSnapshot], names: dict[str, int]) -> str:
    proposed = sum(view.num_proposed for step in steps for view in step.drafts)
    kept = sum(view.num_accepted for step in steps for view in step.drafts)
    return (
        f"{title} {len(names)} requests in {len(steps)} steps: at most "
        f"{max(len(step.waiting) for step in steps)} wait and "
        f"{max(len(step.scheduled) for step in steps)} run together; "
        f"{sum(step.num_tokens for step in steps)} tokens were computed and "
        f"{sum(len(step.sampled) for step in steps)} came out, {kept} of {proposed} drafts right. "
        f"A slider steps through them."
    )
