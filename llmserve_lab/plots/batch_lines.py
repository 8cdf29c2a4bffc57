"""How many requests run in each step, for several ways to hold the same memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import graph_objects, legend_below, new_figure, owner_colour

if TYPE_CHECKING:
    import plotly.graph_objects as go

PLOT_PIXELS = 280
AROUND = 170
LEGEND_FOR = 220  # a lower plot than it is: two rows of entries need more room below the axis
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def batch_lines(
    batches: Mapping[str, Sequence[int]],
    title: str = "How many requests run together, and for how many steps?",
) -> go.Figure:
    """A line for each way, which ends with its last step.

    batches: name -> requests in each step.

    Raises:
        ValueError: no line, or one without steps.
    """
    if not batches or not all(len(counts) for counts in batches.values()):
        raise ValueError("batch_lines needs at least one run, and steps in each.")
    figure = new_figure(title, PLOT_PIXELS + AROUND)
    for index, (name, counts) in enumerate(batches.items()):
        figure.add_trace(_line(index, name, counts))
    legend_below(figure, LEGEND_FOR)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="step", rangemode="tozero")
    figure.update_yaxes(title_text="requests in the step", rangemode="tozero")
    figure.update_layout(meta={"alt": _in_words(title, batches)})
    return figure


def _line(index: int, name: str, counts: Sequence[int]) -> Any:
    return graph_objects().Scatter(
        name=f"{name}: {len(counts):,} steps",
        x=[*range(len(counts)), len(counts)],
        y=[*counts, 0],
        mode="lines",
        line={
            "color": owner_colour(index),
            "width": 2.5,
            "dash": DASHES[index % len(DASHES)],
            "shape": "hv",
        },
        hovertemplate=f"{name}, step %{{x}}: %{{y}} requests<extra></extra>",
    )


def _in_words(title: str, batches: Mapping[str, Sequence[int]]) -> str:
    each = " ".join(
        f"{name}: at most {max(counts)} together, {sum(counts) / len(counts):.1f} on average, "
        f"{len(counts)} steps."
        for name, counts in batches.items()
    )
    return f"{title} {each}"
