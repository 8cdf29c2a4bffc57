"""A long prompt arrives while others decode: the steps around it, at several token budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.step_bars import step_kind
from llmserve_lab.plots.stepping import Stepper, step_caption
from llmserve_lab.plots.theme import (
    DECODE,
    MIXED,
    NEUTRAL,
    PREFILL,
    Mark,
    bar_style,
    graph_objects,
    new_figure,
    or_nothing,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT = 420
HEADROOM = 1.12  # of the axis, above the highest bar


def arrival_steps(
    runs: Sequence[Any], title: str = "What does one long prompt do to the others' gaps?"
) -> go.Figure:
    """A bar per step, as high as the gap that it puts between two tokens of those who decode; a
    slider steps through the budgets.

    Args:
        runs: `LateArrival`s, one for each budget.

    Raises:
        ValueError: no run.
    """
    if not runs:
        raise ValueError("arrival_steps needs at least one run of arrive_late.")
    figure = new_figure(title, HEIGHT)
    stepper = Stepper(figure)
    for run in runs:
        label = (
            f"{run.budget} tokens a step: longest gap {run.longest_gap_ms:.0f} ms, first token of "
            f"the long prompt after {run.prefill_steps} step{'s' * (run.prefill_steps != 1)}"
        )
        stepper.stop(label, [(_bars(run, mark), {}) for mark in (DECODE, MIXED, PREFILL)])
    _layout(figure, runs)
    figure.update_layout(meta={"alt": _in_words(title, runs)})
    return stepper.finish(start=0, below=62, prefix="budget ")


def _bars(run: Any, mark: Mark) -> Any:
    chosen = [i for i, step in enumerate(run.steps) if step_kind(step) is mark]
    return graph_objects().Bar(
        name=mark.label,
        legendgroup=mark.label,
        showlegend=mark is not PREFILL or bool(chosen),
        x=or_nothing([i - run.first + 1 for i in chosen]),
        y=or_nothing([1000 * run.steps[i].seconds for i in chosen]),
        customdata=[step_caption(run.steps[i]) for i in chosen],
        marker=bar_style(mark),
        hovertemplate="step %{x} from the arrival: %{customdata}<extra></extra>",
    )


def _layout(figure: go.Figure, runs: Sequence[Any]) -> None:
    longest = max(len(run.steps) - run.first for run in runs)
    earliest = max(run.first for run in runs)
    figure.update_layout(
        barmode="overlay", bargap=0.12, margin={"b": 124}, legend={"itemsizing": "constant"}
    )
    figure.update_xaxes(
        title_text="step, counted from the arrival of the long prompt",
        range=[0.5 - earliest, longest + 0.5],
    )
    top = HEADROOM * max(run.longest_gap_ms for run in runs)
    figure.update_yaxes(title_text="step time: gap of the others (ms)", range=[0, top])
    figure.add_vline(x=0.5, line={"color": NEUTRAL, "width": 1.5, "dash": "dash"})


def _in_words(title: str, runs: Sequence[Any]) -> str:
    return " ".join(
        [title, *(f"{str(run)[0].upper()}{' '.join(str(run)[1:].split())}." for run in runs)]
    )
