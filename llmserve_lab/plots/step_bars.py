"""Seconds per step: what each iteration of the engine cost, prefill told from decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import require_steps, step_caption
from llmserve_lab.plots.theme import (
    DECODE,
    MIXED,
    PREFILL,
    Mark,
    bar_style,
    graph_objects,
    new_figure,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.trace import StepSnapshot, Trace


def step_times(trace: Trace, title: str = "How long does each step take?") -> go.Figure:
    """A bar per step, in milliseconds.

    Raises:
        ValueError: the trace has no steps.
    """
    steps = require_steps(trace)
    figure = new_figure(title)
    for mark in (PREFILL, MIXED, DECODE):
        chosen = [step for step in steps if step_kind(step) is mark]
        if chosen:
            figure.add_trace(_bars(mark, chosen))
    figure.update_layout(barmode="overlay", bargap=0.15, showlegend=True)
    figure.update_xaxes(title_text="step", rangemode="tozero")
    figure.update_yaxes(title_text="time per step (ms)", rangemode="tozero")
    return figure


def step_kind(step: StepSnapshot) -> Mark:
    """What a step ran: prompt tokens, decode tokens, or both."""
    prefill = sum(item.num_prompt_tokens for item in step.scheduled)
    if not prefill:
        return DECODE
    return PREFILL if prefill == step.num_tokens else MIXED


def _bars(mark: Mark, steps: list[StepSnapshot]) -> Any:
    return graph_objects().Bar(
        name=mark.label,
        x=[step.step for step in steps],
        y=[step.seconds * 1e3 for step in steps],
        customdata=[step_caption(step) for step in steps],
        marker=bar_style(mark),
        hovertemplate="step %{x}: %{customdata}<extra></extra>",
    )
