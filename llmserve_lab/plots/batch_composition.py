"""What each step's batch is made of: prefill and decode tokens, the budget, and who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import require_steps, step_caption
from llmserve_lab.plots.theme import (
    DECODE,
    NEUTRAL,
    PREFILL,
    QUEUE,
    Mark,
    bar_style,
    graph_objects,
    template,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.trace import StepSnapshot, Trace

HEIGHT = 420
QUEUE_TICKS = 3
HEADROOM = 1.12  # of the axis, above the highest bar or line
WITHIN_REACH = 1.6  # times the largest batch: a budget above it would flatten the bars


def batch_composition(
    trace: Trace, title: str = "What is each step's batch made of, and who waits?"
) -> go.Figure:
    """A bar per step, decode tokens below and prefill tokens above; the budget
    (`max_num_batched_tokens`) as a line, and below it how many requests wait after the step.

    Raises:
        ValueError: the trace has no steps.
    """
    steps = require_steps(trace)
    figure = _panels(title, steps)
    for mark, counts in ((DECODE, _decode(steps)), (PREFILL, _prefill(steps))):
        figure.add_trace(_bars(mark, steps, counts), row=1, col=1)
    budget = _budget(steps)
    if budget is not None:
        figure.add_trace(_line(steps, budget), row=1, col=1)
    figure.add_trace(_bars(QUEUE, steps, [len(s.waiting) for s in steps]), row=2, col=1)
    figure.update_layout(meta={"alt": _in_words(title, steps, budget)})
    return figure


def _prefill(steps: list[StepSnapshot]) -> list[int]:
    return [sum(item.num_prompt_tokens for item in step.scheduled) for step in steps]


def _decode(steps: list[StepSnapshot]) -> list[int]:
    """Output tokens that ran: one a request, or more where a preemption lost them."""
    return [s.num_tokens - prompt for s, prompt in zip(steps, _prefill(steps), strict=True)]


def _budget(steps: list[StepSnapshot]) -> int | None:
    """Tokens that a step may hold; a trace of an older version does not know."""
    return max((s.max_num_batched_tokens or 0 for s in steps), default=0) or None


def _in_reach(steps: list[StepSnapshot], budget: int) -> bool:
    return budget <= WITHIN_REACH * max(1, *(step.num_tokens for step in steps))


def _panels(title: str, steps: list[StepSnapshot]) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.08
    )
    figure.update_layout(
        template=template(), title_text=title, height=HEIGHT, barmode="stack", bargap=0.15,
        autosize=True, showlegend=True, legend_traceorder="normal",
    )  # fmt: skip
    budget = _budget(steps)
    largest = max(1, *(step.num_tokens for step in steps))
    top = max(largest, budget) if budget and _in_reach(steps, budget) else largest
    queued = max(1, *(len(step.waiting) for step in steps))
    figure.update_yaxes(title_text="tokens in the step", range=[0, top * HEADROOM], row=1, col=1)
    figure.update_yaxes(title_text="waiting", range=[0, queued * HEADROOM], row=2, col=1)
    figure.update_yaxes(dtick=-(-queued // QUEUE_TICKS), row=2, col=1)
    figure.update_xaxes(title_text="step", row=2, col=1)
    return figure


def _bars(mark: Mark, steps: list[StepSnapshot], counts: list[int]) -> Any:
    return graph_objects().Bar(
        name=mark.label,
        x=[step.step for step in steps],
        y=counts,
        customdata=[step_caption(step) for step in steps],
        marker=bar_style(mark),
        hovertemplate="step %{x}: %{y} " + mark.label + "<br>%{customdata}<extra></extra>",
    )


def _line(steps: list[StepSnapshot], budget: int) -> Any:
    """The budget; far above the bars only its entry in the key is left."""
    near = _in_reach(steps, budget)
    ends = [steps[0].step - 0.5, steps[-1].step + 0.5]
    return graph_objects().Scatter(
        name=f"budget: {budget} tokens" + ("" if near else ", far above"),
        x=ends if near else [None],
        y=[budget, budget] if near else [None],
        mode="lines",
        line={"color": NEUTRAL, "width": 2, "dash": "dash"},
        hovertemplate="budget: %{y} tokens a step<extra></extra>",
    )


def _in_words(title: str, steps: list[StepSnapshot], budget: int | None) -> str:
    """The alternative text: totals, the largest batch, the budget, the longest queue."""
    largest = max(steps, key=lambda step: step.num_tokens)
    full = sum(step.num_tokens == budget for step in steps)
    parts = [
        title,
        f"{len(steps)} steps ran {sum(_prefill(steps))} prompt and {sum(_decode(steps))} decode "
        f"tokens, at most {largest.num_tokens} in one (step {largest.step}).",
    ]
    if budget is not None:
        verb = "reaches" if full == 1 else "reach"
        parts.append(f"The budget is {budget} tokens, which {full} step{'s' * (full != 1)} {verb}.")
    parts.append(_queue_in_words(steps))
    return " ".join(parts)


def _queue_in_words(steps: list[StepSnapshot]) -> str:
    longest = max(steps, key=lambda step: len(step.waiting))
    if not longest.waiting:
        return "No request waits after any step."
    return (
        f"After a step at most {len(longest.waiting)} requests wait (step {longest.step}); "
        f"after {sum(not step.waiting for step in steps)} steps none does."
    )
