"""Where speculative decoding pays, calculated: the speed-up over the batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import CALCULATED, NEUTRAL, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT = 430
DASHES = ("solid", "dash", "dot", "dashdot")
HEADROOM = 1.1


def draft_speedup(
    calculate: Callable[[float, int, int], float],
    batches: Sequence[int],
    counts: Sequence[int],
    alphas: Sequence[float],
    title: str = "From which batch on do drafts cost more than they bring?",
) -> go.Figure:
    """A curve per number of drafts; a slider goes through the acceptance probabilities.

    Args:
        calculate: (alpha, number of drafts, batch size) to how many times as fast.

    Raises:
        ValueError: nothing to draw.
    """
    if not (batches and counts and alphas) or len(counts) > len(DASHES):
        raise ValueError(
            f"draft_speedup needs batches, alphas, and 1 to {len(DASHES)} numbers of drafts."
        )
    values = {
        alpha: {n: [calculate(alpha, n, batch) for batch in batches] for n in counts}
        for alpha in alphas
    }
    figure = new_figure(title, HEIGHT)
    stepper = Stepper(figure)
    stepper.always(_even(batches))
    for alpha in alphas:
        curves = zip(values[alpha].items(), DASHES, strict=False)
        traces: list[tuple[Any, dict[str, Any]]] = [
            (_curve(batches, n, rows, dash), {}) for (n, rows), dash in curves
        ]
        stepper.stop(f"{alpha:.0%} of the drafts right", traces)
    top = max(max(rows) for found in values.values() for rows in found.values())
    figure.update_xaxes(
        title_text="batch size", type="log", tickvals=list(batches),
        ticktext=[str(batch) for batch in batches], minor={"ticks": ""},
    )  # fmt: skip
    figure.update_yaxes(title_text="times as fast as without", range=[0, HEADROOM * top])
    figure.update_layout(showlegend=True, margin={"t": 108, "b": 120})
    figure.update_layout(meta={"alt": _in_words(title, batches, values)})
    return stepper.finish(start=len(alphas) // 2, below=56, prefix="")


def _curve(batches: Sequence[int], count: int, rows: list[float], dash: str) -> Any:
    return graph_objects().Scatter(
        name=f"{count} drafts, calculated", x=list(batches), y=rows, mode="lines+markers",
        line={"color": CALCULATED.colour, "width": 2.5, "dash": dash},
        hovertemplate=f"{count} drafts, batch %{{x}}: %{{y:.2f}} times<extra></extra>",
    )  # fmt: skip


def _even(batches: Sequence[int]) -> Any:
    return graph_objects().Scatter(
        name="as fast as without", x=[batches[0], batches[-1]], y=[1, 1], mode="lines",
        line={"color": NEUTRAL, "width": 1.5, "dash": "longdash"}, hoverinfo="skip",
    )  # fmt: skip


def _in_words(
    title: str, batches: Sequence[int], values: dict[float, dict[int, list[float]]]
) -> str:
    parts = [title, "Calculated."]
    for alpha, found in values.items():
        for count, rows in found.items():
            losing = next((b for b, v in zip(batches, rows, strict=True) if v < 1), None)
            end = f"below 1 from batch {losing} on" if losing else "never below 1"
            parts.append(f"{alpha:.0%} right, {count} drafts: {rows[0]:.2f} at first, {end}.")
    return " ".join(parts)
