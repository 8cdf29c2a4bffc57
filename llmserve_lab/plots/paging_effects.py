"""Waste, use, batch and throughput of the same requests under several ways to give out memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    DECODE,
    KV_CACHE,
    MEASURED,
    WASTE,
    Mark,
    bar_style,
    graph_objects,
    template,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLUMNS = 2
HEIGHT, HEADROOM = 520, 1.22  # pixels; above the highest bar, for its label


@dataclass(frozen=True, slots=True)
class Effect:
    """One panel. scale: from the row's number to the axis's."""

    field: str
    axis: str
    mark: Mark
    scale: float = 1.0


EFFECTS = (
    Effect("waste", "held slots without a token (%)", WASTE, 100),
    Effect("used", "memory that holds tokens (%)", KV_CACHE, 100),
    Effect("batch", "requests in a step", DECODE),
    Effect("throughput", "tokens out per step", MEASURED),
)


def paging_effects(
    rows: Mapping[str, Mapping[str, float]], title: str = "What does paging change?"
) -> go.Figure:
    """Four panels of bars, one for each effect.

    rows: name -> `waste` and `used` as shares, `batch` (requests in a step), `throughput` (tokens
    out per step).

    Raises:
        ValueError: no rows, or a row without one of the four.
    """
    if not rows:
        raise ValueError("paging_effects needs at least one row.")
    for name, each in rows.items():
        missing = [effect.field for effect in EFFECTS if effect.field not in each]
        if missing:
            raise ValueError(f"The row {name!r} of paging_effects has no {missing[0]!r}.")
    figure = _panels(title)
    for index, effect in enumerate(EFFECTS):
        row, column = (1 + part for part in divmod(index, COLUMNS))
        values = [effect.scale * each[effect.field] for each in rows.values()]
        figure.add_trace(_bars(effect, list(rows), values), row=row, col=column)
        figure.update_yaxes(
            title_text=effect.axis, range=[0, HEADROOM * max(*values, 1e-9)], row=row, col=column
        )
        figure.update_xaxes(title_text="how memory is given", row=row, col=column)
    figure.update_layout(meta={"alt": _in_words(title, rows)})
    return figure


def _panels(title: str) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    rows = -(-len(EFFECTS) // COLUMNS)
    figure = make_subplots(rows=rows, cols=COLUMNS, horizontal_spacing=0.14, vertical_spacing=0.2)
    figure.update_layout(
        template=template(), title_text=title, height=HEIGHT, autosize=True, showlegend=False,
        margin={"t": 64},
    )  # fmt: skip
    return figure


def _bars(effect: Effect, names: list[str], values: list[float]) -> Any:
    return graph_objects().Bar(
        name=effect.axis,
        x=names,
        y=values,
        marker=bar_style(effect.mark),
        text=[f"{value:.3g}" for value in values],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=f"%{{x}}: %{{y:.4g}}<extra>{effect.axis}</extra>",
    )


def _in_words(title: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    listed = " ".join(
        f"{name}: "
        + ", ".join(f"{effect.axis} {effect.scale * row[effect.field]:.3g}" for effect in EFFECTS)
        + "."
        for name, row in rows.items()
    )
    return f"{title} {listed}"
