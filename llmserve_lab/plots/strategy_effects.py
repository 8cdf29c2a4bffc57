"""What each strategy moves: the counts of its run against those of the run without any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    MEASURED,
    NEUTRAL,
    bar_style,
    graph_objects,
    template,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.course.strategies import StrategyRun

PANELS = (
    ("steps", "steps"),
    ("computed_tokens", "tokens computed"),
    ("num_bytes", "bytes moved"),
    ("kv_bytes", "KV cache held at most"),
)
ROW_PIXELS, FRAME_PIXELS = 36, 240
PERCENT = 100
HEADROOM = 1.3  # of the axis, for the number beside the longest bar


def strategy_effects(
    runs: Sequence[StrategyRun], title: str = "What does each strategy move, and what not?"
) -> go.Figure:
    """Four panels of bars, a row per run: per cent of the first run's count.

    Raises:
        ValueError: fewer than two runs, or a count of the first that is zero.
    """
    if len(runs) < 2 or not all(getattr(runs[0], field) for field, _ in PANELS):
        raise ValueError("strategy_effects needs a run to compare with, and one to compare.")
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=2, cols=2, shared_yaxes=True, vertical_spacing=0.2, horizontal_spacing=0.06,
        subplot_titles=[name for _, name in PANELS],
    )  # fmt: skip
    for place, (field, name) in enumerate(PANELS):
        figure.add_trace(_bars(runs, field, name), row=place // 2 + 1, col=place % 2 + 1)
    shares = [share for field, _ in PANELS for share in _shares(runs, field)]
    figure.update_layout(
        template=template(), title_text=title, showlegend=False, bargap=0.3, autosize=True,
        height=FRAME_PIXELS + 2 * ROW_PIXELS * len(runs), margin={"t": 84, "b": 44},
    )  # fmt: skip
    figure.update_annotations(font={"size": 13, "color": NEUTRAL})
    figure.update_xaxes(
        title_text=f"% of the run with {runs[0].name}", range=[0, HEADROOM * max(shares)]
    )
    figure.update_yaxes(title_text="switched on", autorange="reversed", col=1)
    figure.update_layout(meta={"alt": _in_words(title, runs)})
    return figure


def _shares(runs: Sequence[StrategyRun], field: str) -> list[float]:
    base = getattr(runs[0], field)
    return [PERCENT * getattr(run, field) / base for run in runs]


def _bars(runs: Sequence[StrategyRun], field: str, name: str) -> Any:
    shares = _shares(runs, field)
    return graph_objects().Bar(
        orientation="h",
        x=shares,
        y=[run.name for run in runs],
        marker=bar_style(MEASURED),
        text=[f"{share:.0f}%" for share in shares],
        textposition="outside",
        cliponaxis=False,
        customdata=[getattr(run, field) for run in runs],
        hovertemplate=f"%{{y}}: %{{x:.0f}}% of the {name} without any (%{{customdata:,.0f}})"
        "<extra></extra>",
    )


def _in_words(title: str, runs: Sequence[StrategyRun]) -> str:
    parts = [title, f"Against {runs[0].name}, per cent:"]
    for field, name in PANELS:
        listed = zip(runs[1:], _shares(runs, field)[1:], strict=True)
        parts.append(f"{name}: " + ", ".join(f"{run.name} {share:.0f}" for run, share in listed))
    return " ".join(parts) + "."
