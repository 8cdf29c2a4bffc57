"""The same requests under several schedulers, one above the other, on one axis of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper, stops
from llmserve_lab.plots.theme import (
    DECODE,
    NEUTRAL,
    PREFILL,
    QUEUE,
    WASTE,
    Mark,
    bar_style,
    graph_objects,
    or_nothing,
    template,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.step_run import Life, StepRun

ROW_PIXELS, BASE_PIXELS = 17, 250
BAR_WIDTH = 0.72  # of a row
EMPTY = "place empty"
Bar = tuple[int, float, float]  # row, begin, end


def schedule_gantt(
    runs: Mapping[str, StepRun],
    title: str = "Who runs in which step, and whose place is empty?",
    start: int = 0,
) -> go.Figure:
    """A panel for each run, a row for each request in order of arrival: waiting, prefill, decode,
    and then its place for as long as nobody takes it. A slider marks one step in all panels.

    Raises:
        ValueError: no runs, or runs of different numbers of requests.
    """
    counts = {len(run.lives) for run in runs.values()}
    if len(counts) != 1:
        raise ValueError("schedule_gantt needs one run or more, all of the same requests.")
    rows = counts.pop()
    figure = _panels(title, list(runs), rows)
    stepper = Stepper(figure)
    for panel, run in enumerate(runs.values(), 1):
        for mark, bars in _kinds(run).items():
            stepper.always(_bars(mark, bars, first=panel == 1), row=panel, col=1)
    last = int(max(run.end for run in runs.values()))
    for step in stops(last):
        bands = [(_band(step, rows), {"row": p, "col": 1}) for p in range(1, len(runs) + 1)]
        stepper.stop(_label(step, runs), bands)
    figure.update_xaxes(range=[0, last * 1.01])
    figure.update_layout(meta={"alt": _in_words(title, runs)})
    return stepper.finish(start, below=52)


def places_taken(lives: tuple[Life, ...], slots: int, end: float) -> list[float]:
    """When each request's place was given to the next: whoever starts takes the place that has been
    free longest. A place that nobody takes is free until `end`."""
    taken = [end] * len(lives)
    free: list[int | None] = [None] * slots  # whose place it was; None: nobody's yet
    held: list[tuple[float, int]] = []
    for place in sorted(range(len(lives)), key=lambda i: (lives[i].started, i)):
        begun = lives[place].started
        free += [who for ended, who in sorted(held) if ended <= begun]
        held = [(ended, who) for ended, who in held if ended > begun]
        before = free.pop(0) if free else None
        if before is not None:
            taken[before] = begun
        held.append((lives[place].ended, place))
    return taken


def _kinds(run: StepRun) -> dict[Mark, list[Bar]]:
    """The bars of each kind; what takes no step has none."""
    lives = run.lives
    taken = places_taken(lives, run.slots, run.end)
    spans: dict[Mark, list[Bar]] = {
        QUEUE: [(i, life.arrival, life.started) for i, life in enumerate(lives)],
        PREFILL: [(i, life.started, life.first) for i, life in enumerate(lives)],
        DECODE: [(i, life.first, life.ended) for i, life in enumerate(lives)],
        WASTE: [(i, life.ended, taken[i]) for i, life in enumerate(lives)],
    }
    return {mark: [bar for bar in bars if bar[2] > bar[1]] for mark, bars in spans.items()}


def _bars(mark: Mark, bars: list[Bar], first: bool) -> Any:
    name = EMPTY if mark is WASTE else mark.label
    return graph_objects().Bar(
        name=name,
        legendgroup=name,
        showlegend=first,
        orientation="h",
        y=or_nothing([row for row, _, _ in bars]),
        base=[begin for _, begin, _ in bars],
        x=or_nothing([end - begin for _, begin, end in bars]),
        customdata=[[begin, end] for _, begin, end in bars],
        width=BAR_WIDTH,
        marker=bar_style(mark),
        hovertemplate=f"request %{{y}}: {name}<br>from step %{{customdata[0]:.0f}} to "
        "%{customdata[1]:.0f}<extra></extra>",
    )


def _band(step: int, rows: int) -> Any:
    """The step on which the slider stands, over all rows of a panel."""
    return graph_objects().Scatter(
        x=[step, step, step + 1, step + 1, step],
        y=[-0.5, rows - 0.5, rows - 0.5, -0.5, -0.5],
        mode="lines",
        fill="toself",
        line={"color": NEUTRAL, "width": 1.5},
        fillcolor="rgba(128,132,140,0.25)",
        hoverinfo="skip",
        showlegend=False,
    )


def _label(step: int, runs: Mapping[str, StepRun]) -> str:
    told = [
        f"{name}: {run.running(step)} of {run.slots} places, {run.waiting(step)} wait"
        for name, run in runs.items()
    ]
    return f"{step}. {'; '.join(told)}"


def _panels(title: str, names: list[str], rows: int) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=len(names), cols=1, shared_xaxes=True, subplot_titles=names, vertical_spacing=0.09
    )
    figure.update_layout(
        template=template(), title_text=title, barmode="overlay", autosize=True, showlegend=True,
        height=BASE_PIXELS + len(names) * rows * ROW_PIXELS, margin={"t": 106, "b": 112},
        legend={"y": 1.06},
    )  # fmt: skip
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    figure.update_yaxes(
        title_text="request", range=[rows - 0.5, -0.5], dtick=1 if rows <= 12 else 4, showgrid=False
    )
    figure.update_xaxes(title_text="step", row=len(names), col=1)
    return figure


def _in_words(title: str, runs: Mapping[str, StepRun]) -> str:
    parts = [title]
    for name, run in runs.items():
        parts.append(
            f"{name}: {len(run.lives)} requests are done after step {run.end:.0f}; "
            f"{run.wasted} times a place is empty in a step while somebody waits."
        )
    return " ".join([*parts, "A slider marks one step in all panels."])
