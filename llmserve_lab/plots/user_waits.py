"""Requests that came at once, in steps: who waits, who decodes; a slider over the batch limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper, require_steps
from llmserve_lab.plots.theme import (
    DECODE,
    PREFILL,
    QUEUE,
    Mark,
    bar_style,
    graph_objects,
    new_figure,
    or_nothing,
)
from llmserve_lab.plots.timeline import Span, request_order, request_spans

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.trace import Trace

ROW_PIXELS, BASE_PIXELS = 24, 250
BAR_WIDTH = 0.7  # of a row
KINDS = ((QUEUE, "queue"), (PREFILL, "prefill"), (DECODE, "decode"))


def user_waits(
    traces: Mapping[int, Trace],
    title: str = "Who waits less when the batch may be larger?",
    start: int = 0,
) -> go.Figure:
    """Queue, prefill and decode of each request over the engine's steps, for each limit on the
    batch; the slider chooses the limit.

    Args:
        traces: limit -> trace of the same requests, all of which were there before the first step.
        start: the stop at which the slider stands.

    Raises:
        ValueError: no traces, or one without steps.
    """
    if not traces:
        raise ValueError("user_waits needs the trace of at least one limit.")
    runs = {limit: require_steps(trace) for limit, trace in traces.items()}
    rows = request_order(next(iter(runs.values())))
    figure = new_figure(title, height=BASE_PIXELS + ROW_PIXELS * len(rows))
    stepper, said = Stepper(figure), []
    for limit, steps in runs.items():
        order = request_order(steps)
        placed = _placed(list(request_spans(steps)))
        stepper.stop(
            _label(limit, len(steps), placed, len(order)),
            [(_bars(mark, kind, placed, order), {}) for mark, kind in KINDS],
        )
        said.append(stepper.labels[-1])
    _layout(figure, len(rows), max(map(len, runs.values())))
    figure.update_layout(meta={"alt": f"{title} Limit {'; limit '.join(said)}."})
    return stepper.finish(start, prefix="limit ")


def _placed(spans: list[Span]) -> list[tuple[Span, int]]:
    """Each span with the step in which it begins: a request is somewhere in every step."""
    begun: dict[str, int] = {}
    placed = []
    for span in sorted(spans, key=lambda span: span.start):
        placed.append((span, begun.get(span.request_id, 0)))
        begun[span.request_id] = placed[-1][1] + span.steps
    return placed


def _label(limit: int, steps: int, placed: list[tuple[Span, int]], count: int) -> str:
    waited = sum(span.steps for span, _ in placed if span.kind == "queue")
    return f"{limit}: {steps} steps in all, {waited / count:.3g} of them in the queue on average"


def _bars(mark: Mark, kind: str, placed: list[tuple[Span, int]], rows: list[str]) -> Any:
    chosen = [(span, begin) for span, begin in placed if span.kind == kind]
    return graph_objects().Bar(
        name=mark.label,
        orientation="h",
        y=or_nothing([rows.index(span.request_id) for span, _ in chosen]),
        base=[begin for _, begin in chosen],
        x=or_nothing([span.steps for span, _ in chosen]),
        customdata=[[begin, begin + span.steps] for span, begin in chosen],
        width=BAR_WIDTH,
        marker=bar_style(mark),
        hovertemplate="user %{y}: " + mark.label + "<br>after step %{customdata[0]} to "
        "%{customdata[1]}<extra></extra>",
    )


def _layout(figure: go.Figure, count: int, steps: int) -> None:
    figure.update_layout(barmode="overlay", margin={"b": 118})
    figure.update_xaxes(title_text="engine steps", range=[0, steps * 1.01])
    figure.update_yaxes(
        title_text="user, in order of arrival",
        tickvals=list(range(count)),
        range=[count - 0.5, -0.5],
        showgrid=False,
    )
