"""The request timeline: a row per request, from the queue through prefill to its last token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper, require_steps, step_label, stops
from llmserve_lab.plots.theme import (
    DECODE,
    NEUTRAL,
    PREFILL,
    QUEUE,
    Mark,
    bar_style,
    graph_objects,
    new_figure,
    or_nothing,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.trace import StepSnapshot, Trace

ROW_PIXELS = 26
BASE_PIXELS = 250
BAR_WIDTH = 0.62  # of a row


@dataclass(slots=True)
class Span:
    """A stretch of one request's life; times in seconds from the trace's origin."""

    request_id: str
    kind: str  # "queue", "prefill" or "decode"
    start: float
    end: float
    steps: int = 1


def request_timeline(trace: Trace, title: str = "Where does each request's time go?") -> go.Figure:
    """Queue, prefill and decode of each request over time; a slider marks one step.

    Raises:
        ValueError: the trace has no steps.
    """
    steps = require_steps(trace)
    rows = request_order(steps)
    height = BASE_PIXELS + ROW_PIXELS * len(rows)
    figure = new_figure(title, height)
    stepper = Stepper(figure)
    spans = list(request_spans(steps))
    for mark, kind in ((QUEUE, "queue"), (PREFILL, "prefill"), (DECODE, "decode")):
        stepper.always(_bars(mark, [span for span in spans if span.kind == kind], rows))
    stepper.always(_tokens(steps, rows))
    for index in stops(len(steps)):
        step = steps[index]
        stepper.stop(step_label(step), [(_band(step, rows), {})])
    stepper.always(_token_key())
    _layout(figure, rows, steps)
    figure.update_layout(meta={"alt": _in_words(title, rows, spans)})
    return stepper.finish(start=0)


def request_order(steps: list[StepSnapshot]) -> list[str]:
    """Request ids in the order in which the engine first ran or listed them."""
    seen: dict[str, None] = {}
    for step in steps:
        ids = [item.request_id for item in step.scheduled] + [v.request_id for v in step.waiting]
        seen.update(dict.fromkeys(ids))
    return list(seen)


def request_spans(steps: list[StepSnapshot]) -> Iterator[Span]:
    """Each request's life as spans, neighbours of one kind merged."""
    open_spans: dict[str, Span] = {}
    for step in steps:
        for request_id, kind in _doing(step).items():
            last = open_spans.get(request_id)
            if last and last.kind == kind:
                last.end, last.steps = step.started + step.seconds, last.steps + 1
                continue
            if last:
                yield last
            open_spans[request_id] = Span(
                request_id, kind, step.started, step.started + step.seconds
            )
    yield from open_spans.values()


def _doing(step: StepSnapshot) -> dict[str, str]:
    doing = {view.request_id: "queue" for view in step.waiting}
    for item in step.scheduled:
        doing[item.request_id] = "prefill" if item.num_prompt_tokens else "decode"
    return doing


def _bars(mark: Mark, spans: list[Span], rows: list[str]) -> Any:
    return graph_objects().Bar(
        name=mark.label,
        orientation="h",
        y=or_nothing([rows.index(span.request_id) for span in spans]),
        base=[span.start for span in spans],
        x=or_nothing([span.end - span.start for span in spans]),
        customdata=[[s.request_id, s.start, s.end, s.steps] for s in spans],
        width=BAR_WIDTH,
        marker=bar_style(mark),
        hovertemplate="request %{customdata[0]}: " + mark.label + "<br>%{customdata[1]:.3f} to "
        "%{customdata[2]:.3f} s, %{customdata[3]} steps<extra></extra>",
    )


def _tokens(steps: list[StepSnapshot], rows: list[str]) -> Any:
    marks = [(s.started + s.seconds, t.request_id, t.text) for s in steps for t in s.sampled]
    return graph_objects().Scatter(
        name="a token",
        mode="markers",
        x=or_nothing([time for time, _, _ in marks]),
        y=or_nothing([rows.index(request_id) for _, request_id, _ in marks]),
        customdata=[repr(text) for _, _, text in marks],
        showlegend=False,
        marker={"symbol": "line-ns", "size": 9, "line": {"width": 1.4, "color": "#FFFFFF"}},
        hovertemplate="token %{customdata} at %{x:.3f} s<extra></extra>",
    )


def _token_key() -> Any:
    style = {"symbol": "line-ns", "size": 9, "line": {"width": 1.6, "color": NEUTRAL}}
    go = graph_objects()
    return go.Scatter(name="a token", mode="markers", x=[None], y=[None], marker=style)


def _band(step: StepSnapshot, rows: list[str]) -> Any:
    """The stretch of time that the slider stands on, over all rows."""
    left, right = step.started, step.started + step.seconds
    return graph_objects().Scatter(
        x=[left, left, right, right, left],
        y=[-0.5, len(rows) - 0.5, len(rows) - 0.5, -0.5, -0.5],
        mode="lines",
        fill="toself",
        line={"color": NEUTRAL, "width": 1.5},
        fillcolor="rgba(128,132,140,0.25)",
        hoverinfo="skip",
        showlegend=False,
    )


def _in_words(title: str, rows: list[str], spans: list[Span]) -> str:
    """The alternative text: seconds of each kind for each request."""
    parts = []
    for request_id in rows:
        totals = {"queue": 0.0, "prefill": 0.0, "decode": 0.0}
        for span in spans:
            if span.request_id == request_id:
                totals[span.kind] += span.end - span.start
        times = ", ".join(f"{kind} {seconds:.3f} s" for kind, seconds in totals.items() if seconds)
        parts.append(f"Request {request_id}: {times}.")
    return f"{title} {' '.join(parts)}"


def _layout(figure: go.Figure, rows: list[str], steps: list[StepSnapshot]) -> None:
    end = max(step.started + step.seconds for step in steps)
    figure.update_layout(
        barmode="overlay",
        margin={"b": 118},
    )
    figure.update_xaxes(title_text="time (s)", range=[0, end * 1.01])
    figure.update_yaxes(
        title_text="request",
        tickvals=list(range(len(rows))),
        ticktext=rows,
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
    )
