"""Which tokens each step computes, and which it reads from the KV cache: with and without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper, require_steps, stops
from llmserve_lab.plots.theme import DECODE, KV_CACHE, bar_style, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.trace import StepSnapshot, Trace

COMPUTED, READ = "computed in this step", "read from the KV cache"
HEIGHT = 330


def reuse_map(traces: Mapping[str, Trace], title: str = "What is computed again?") -> go.Figure:
    """A row per trace; a slider goes through the steps. Each trace is of one request.

    Raises:
        ValueError: no traces, one without steps, or traces of different lengths.
    """
    if not traces:
        raise ValueError("reuse_map needs at least one trace of one request.")
    steps = {name: require_steps(trace) for name, trace in traces.items()}
    lengths = {len(each) for each in steps.values()}
    if len(lengths) > 1:
        raise ValueError(f"The traces must have as many steps as each other, not {lengths}.")
    figure = new_figure(title, HEIGHT)
    stepper = Stepper(figure)
    count = lengths.pop()
    for index in stops(count):
        shown = {name: each[index] for name, each in steps.items()}
        so_far = {name: _computed(each[: index + 1]) for name, each in steps.items()}
        stepper.stop(_label(index, so_far), [(bars, {}) for bars in _bars(shown)])
    figure.update_layout(
        barmode="stack", showlegend=True, legend_traceorder="normal", margin={"t": 92, "b": 110}
    )
    longest = max(_end(step) for each in steps.values() for step in each)
    figure.update_xaxes(title_text="position in the sequence (tokens)", range=[0, longest])
    figure.update_yaxes(title_text="engine", categoryarray=list(traces)[::-1], showgrid=False)
    figure.update_layout(meta={"alt": _in_words(title, steps)})
    return stepper.finish(start=len(stepper.labels) // 2)


def _bars(shown: Mapping[str, StepSnapshot]) -> list[Any]:
    """Two traces: what comes from the cache, then what is computed."""
    starts = [step.scheduled[0].start for step in shown.values()]
    counts = [step.num_tokens for step in shown.values()]
    parts = ((READ, KV_CACHE, starts), (COMPUTED, DECODE, counts))
    return [
        graph_objects().Bar(
            name=name,
            orientation="h",
            y=list(shown),
            x=values,
            marker=bar_style(mark),
            hovertemplate=f"%{{y}}: %{{x}} tokens {name}<extra></extra>",
        )
        for name, mark, values in parts
    ]


def _label(index: int, so_far: Mapping[str, int]) -> str:
    listed = "; ".join(f"{name}: {total:,}" for name, total in so_far.items())
    return f"{index}, tokens so far: {listed}"


def _computed(steps: list[StepSnapshot]) -> int:
    return sum(step.num_tokens for step in steps)


def _end(step: StepSnapshot) -> int:
    return step.scheduled[0].start + step.num_tokens


def _in_words(title: str, steps: Mapping[str, list[StepSnapshot]]) -> str:
    each = " ".join(
        f"{name}: {_computed(all_steps):,} tokens computed in {len(all_steps)} steps, "
        f"{all_steps[-1].num_tokens} of them in the last."
        for name, all_steps in steps.items()
    )
    return f"{title} {each} A slider steps through {len(next(iter(steps.values())))} steps."
