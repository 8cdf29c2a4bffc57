"""Throughput and goodput over the limit on the batch; a slider moves the promised pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import (
    CALCULATED,
    NEUTRAL,
    SHARED,
    graph_objects,
    legend_below,
    new_figure,
)
from llmserve_lab.simulate.slo import SLO

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.simulate import LoadResult

HEIGHT, PLOT_PIXELS = 450, 220
HEADROOM = 1.12


def limit_goodput(
    runs: Mapping[int, LoadResult],
    paces: Sequence[float],
    title: str = "Which batch limit serves most in time?",
) -> go.Figure:
    """Requests per second that are done, and that are done in time, over `max_num_seqs`. The slider
    sets the longest time per token to each of `paces` (s).

    Raises:
        ValueError: no runs, or no paces.
    """
    if not runs or not paces:
        raise ValueError("limit_goodput needs at least one run and one pace.")
    figure = new_figure(f"{title} (simulated)", HEIGHT)
    stepper = Stepper(figure)
    done = {limit: run.request_throughput for limit, run in runs.items()}
    stepper.always(_line("throughput: done", done, CALCULATED.colour, "solid", "circle"))
    for pace in paces:
        good = {limit: run.goodput(SLO(tpot=pace)) for limit, run in runs.items()}
        best = max(good, key=good.__getitem__)
        line = _line("goodput: done at this pace", good, SHARED.colour, "dash", "diamond")
        label = f"{1000 * pace:.0f} ms a token: limit {best}, {good[best]:.2f} good requests/s"
        stepper.stop(label, [(line, {}), (_best(best, good[best]), {})])
    figure.update_xaxes(
        title_text="max_num_seqs, the most requests in a step (log)", type="log",
        tickvals=list(runs), ticktext=[str(limit) for limit in runs], minor={"ticks": ""},
    )  # fmt: skip
    figure.update_yaxes(title_text="requests/s", range=[0, HEADROOM * max(done.values())])
    legend_below(figure, PLOT_PIXELS)
    told = "; ".join(stepper.labels)
    figure.update_layout(
        margin={"b": 160}, meta={"alt": f"{title} (simulated) Best at most {told}."}
    )
    return stepper.finish(start=len(paces) // 2, below=92, prefix="at most ")


def _line(name: str, values: Mapping[int, float], colour: str, dash: str, symbol: str) -> Any:
    return graph_objects().Scatter(
        name=name,
        x=list(values),
        y=list(values.values()),
        mode="lines+markers",
        line={"color": colour, "width": 2.5, "dash": dash},
        marker={"color": colour, "size": 8, "symbol": symbol},
        hovertemplate=f"limit %{{x}}: %{{y:.2f}} requests/s<extra>{name}</extra>",
    )


def _best(limit: int, height: float) -> Any:
    return graph_objects().Scatter(
        name="best limit",
        x=[limit],
        y=[height],
        mode="markers",
        marker={"symbol": "circle-open", "size": 20, "color": NEUTRAL, "line": {"width": 2.5}},
        hovertemplate=f"best: limit {limit}<extra></extra>",
    )
