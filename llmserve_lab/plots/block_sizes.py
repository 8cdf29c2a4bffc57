"""What a block's size changes: waste, length of the tables, and which shared prefixes are found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import KV_CACHE, NEUTRAL, SHARED, WASTE, Mark, graph_objects, template

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT, SMALL = 340, 10  # pixels; of labels that a narrow page must not turn
FIELD = "block_size"
APART = 4  # times; sizes closer than that are not both labelled


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity. symbol: of its points."""

    field: str
    axis: str
    mark: Mark
    symbol: str
    log: bool = False


PANELS = (
    Panel("waste", "held slots without a token (%)", WASTE, "circle"),
    Panel("entries", "table entries per request", KV_CACHE, "square", log=True),
    Panel("found", "prefix tokens found (%)", SHARED, "diamond"),
)


def block_sizes(
    rows: Sequence[Mapping[str, float]],
    title: str = "What does a larger block cost, and what does it save?",
) -> go.Figure:
    """Three panels over the block size (log).

    rows: one a size: `block_size`, `waste` and `found` as percentages, `entries` a request.

    Raises:
        ValueError: fewer than two rows, or one without a field.
    """
    if len(rows) < 2:
        raise ValueError("block_sizes compares: give rows of at least two block sizes.")
    for row in rows:
        missing = [name for name in (FIELD, *(p.field for p in PANELS)) if name not in row]
        if missing:
            raise ValueError(f"A row of block_sizes has no {missing[0]!r}: {dict(row)}.")
    figure = _panels(title)
    sizes = [row[FIELD] for row in rows]
    for column, panel in enumerate(PANELS, start=1):
        line = _line(panel, sizes, [row[panel.field] for row in rows])
        figure.add_trace(line, row=1, col=column)
        kind = {"type": "log", "dtick": 1} if panel.log else {"rangemode": "tozero"}
        figure.update_yaxes(title_text=panel.axis, row=1, col=column, **kind)
    ticks = {
        "tickvals": sizes, "ticktext": _apart(sizes),
        "tickangle": 0, "tickfont": {"size": SMALL},
    }  # fmt: skip
    figure.update_xaxes(title_text="block size (tokens)", type="log", **ticks)
    return figure


def _apart(sizes: list[float]) -> list[str]:
    """A label for each size, from the largest down, but where it would run into the one after it
    on a narrow page."""
    labels, after = [], math.inf
    for size in reversed(sizes):
        labels.append(f"{size:g}" if after >= APART * size else "")
        after = size if labels[-1] else after
    return labels[::-1]


def _panels(title: str) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=len(PANELS), horizontal_spacing=0.11)
    figure.update_layout(
        template=template(), title_text=title, height=HEIGHT, autosize=True, showlegend=False,
        margin={"t": 64},
    )  # fmt: skip
    return figure


def _line(panel: Panel, sizes: Sequence[float], values: Sequence[float]) -> Any:
    return graph_objects().Scatter(
        name=panel.axis,
        x=list(sizes),
        y=list(values),
        mode="lines+markers",
        cliponaxis=False,
        line={"color": panel.mark.colour, "width": 2.5},
        marker={
            "color": panel.mark.colour, "size": 9, "symbol": panel.symbol,
            "line": {"width": 1, "color": NEUTRAL},
        },
        hovertemplate=f"blocks of %{{x}}: %{{y:.4g}}<extra>{panel.axis}</extra>",
    )  # fmt: skip
