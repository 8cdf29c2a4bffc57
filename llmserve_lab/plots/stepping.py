"""A slider through an engine's steps: one group of traces a step, one group visible at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import DECODE, GRID, NEUTRAL, TRANSPARENT

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.trace import StepSnapshot, Trace

MAX_STOPS = 60  # a longer trace is sampled evenly, so that the notebook stays small


def require_steps(trace: Trace) -> list[StepSnapshot]:
    """The trace's steps.

    Raises:
        ValueError: there are none.
    """
    steps = list(trace)
    if not steps:
        raise ValueError(
            "This trace has no steps; make the engine with LLM(..., trace=True) and generate first."
        )
    return steps


def stops(count: int, limit: int = MAX_STOPS) -> list[int]:
    """At most `limit` of the indices 0 to count - 1, evenly spread, both ends kept."""
    if count <= limit:
        return list(range(count))
    return sorted({round(i * (count - 1) / (limit - 1)) for i in range(limit)})


@dataclass(slots=True)
class Stepper:
    """Collects the traces of each stop, then adds the slider that shows one stop at a time."""

    figure: go.Figure
    labels: list[str] = field(default_factory=list)
    owners: list[int | None] = field(default_factory=list)  # stop of each trace; None: always on

    def always(self, trace: Any, **place: Any) -> None:
        """Add a trace that every stop shows."""
        self.owners.append(None)
        self.figure.add_trace(trace, **place)

    def stop(self, label: str, traces: Sequence[tuple[Any, dict[str, Any]]]) -> None:
        """Add a stop with its own traces, each with its place (row and col, or nothing)."""
        for trace, place in traces:
            self.owners.append(len(self.labels))
            self.figure.add_trace(trace, **place)
        self.labels.append(label)

    def finish(self, start: int, below: int = 48, prefix: str = "step ") -> go.Figure:
        """Add the slider, standing at stop `start`, `below` pixels under the plot. prefix: written
        before a stop's label."""
        for trace, visible in zip(self.figure.data, self._visible(start), strict=True):
            trace.visible = visible
        steps = [
            {"label": label, "method": "restyle", "args": ["visible", self._visible(index)]}
            for index, label in enumerate(self.labels)
        ]
        self.figure.update_layout(sliders=[_slider(steps, start, below, prefix)])
        return self.figure

    def _visible(self, stop: int) -> list[bool]:
        return [owner is None or owner == stop for owner in self.owners]


def _slider(steps: list[dict[str, Any]], start: int, below: int, prefix: str) -> dict[str, Any]:
    return {
        "steps": steps,
        "active": start,
        "pad": {"t": below, "b": 4},
        "currentvalue": {
            "prefix": prefix,
            "font": {"size": 12, "color": NEUTRAL},
            "xanchor": "left",
        },
        "bgcolor": GRID,
        "activebgcolor": DECODE.colour,
        "bordercolor": TRANSPARENT,
        "tickcolor": NEUTRAL,
        "ticklen": 0,
        "minorticklen": 0,
        "font": {"size": 1, "color": TRANSPARENT},
    }


def step_label(step: StepSnapshot) -> str:
    """One line about a step: its number, what ran, for how long."""
    return f"{step.step}: {step_caption(step)}"


def step_caption(step: StepSnapshot) -> str:
    """What a step ran and for how long."""
    prefill = sum(item.num_prompt_tokens for item in step.scheduled)
    decode = step.num_tokens - prefill
    parts = []
    if prefill:
        parts.append(f"{prefill} prompt token{'s' * (prefill != 1)} (prefill)")
    if decode:
        parts.append(f"{decode} decode token{'s' * (decode != 1)}")
    return f"{' + '.join(parts) or 'nothing ran'} in {step.seconds * 1e3:.1f} ms"
