"""What the slots of a reserved memory are for, step by step, as stacked areas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    FREE,
    KV_CACHE,
    NEUTRAL,
    WASTE,
    graph_objects,
    legend_below,
    new_figure,
    translucent,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.slot_use import SlotUse

PLOT_PIXELS = 300
AROUND = 200
LEGEND_FOR = 170  # a lower plot than it is: three rows of entries need more room below the axis
PATTERN = {"size": 7, "solidity": 0.2}
PARTS = (  # name, field, fill colour, pattern
    ("used: holds a token", "used", KV_CACHE.colour, ""),
    ("reserved, a token comes later", "later", translucent(KV_CACHE.colour, 0.3), "."),
    ("reserved, never used", "never", translucent(WASTE.colour, 0.55), WASTE.pattern),
    ("free, outside the largest run", "scattered", translucent(NEUTRAL, 0.5), "x"),
    ("free, largest run", "largest_free_run", FREE, ""),
)


def slot_use_areas(
    uses: Sequence[SlotUse], title: str = "What are the slots for, step by step?"
) -> go.Figure:
    """The parts of all slots over the steps, one above the other.

    uses: what `slot_uses` returned.

    Raises:
        ValueError: no steps.
    """
    if not uses:
        raise ValueError("slot_use_areas needs the slot use of at least one step.")
    figure = new_figure(title, PLOT_PIXELS + AROUND)
    for name, field, colour, pattern in PARTS:
        figure.add_trace(_area(name, [getattr(use, field) for use in uses], colour, pattern))
    legend_below(figure, LEGEND_FOR)
    figure.update_layout(legend_traceorder="normal")
    figure.update_xaxes(title_text="step", range=[0, max(1, len(uses) - 1)], showgrid=False)
    figure.update_yaxes(title_text="slots", range=[0, uses[0].slots])
    figure.update_layout(meta={"alt": _in_words(title, uses)})
    return figure


def _area(name: str, counts: list[int], colour: str, pattern: str) -> Any:
    fill = {"shape": pattern, "bgcolor": colour, "fgcolor": NEUTRAL, **PATTERN} if pattern else None
    return graph_objects().Scatter(
        name=name,
        x=list(range(len(counts))),
        y=counts,
        mode="lines",
        line={"width": 0, "shape": "hv"},
        stackgroup="slots",
        fillcolor=colour,
        fillpattern=fill,
        hovertemplate=f"step %{{x}}: %{{y:,}} {name}<extra></extra>",
    )


def _in_words(title: str, uses: Sequence[SlotUse]) -> str:
    slots = sum(use.slots for use in uses)
    shares = ", ".join(
        f"{name} {sum(getattr(use, field) for use in uses) / slots:.0%}"
        for name, field, _, _ in PARTS
    )
    return f"{title} {len(uses)} steps of {uses[0].slots:,} slots. On average: {shares}."
