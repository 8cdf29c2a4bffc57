"""What a limit on the batch does to the waits of an open loop; a slider moves the load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import DECODE, NEUTRAL, PREFILL, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.simulate import LoadResult

PERCENT = 95
LINES = (
    ("e2e", "whole answer", NEUTRAL, "solid", "circle"),
    ("ttft", "first token (queue and prefill)", PREFILL.colour, "dash", "diamond"),
    ("tpot", "each token after it", DECODE.colour, "dot", "square"),
)


def limit_curves(
    runs: Mapping[float, Mapping[int, LoadResult]],
    title: str = "Which limit on the batch keeps waits short?",
) -> go.Figure:
    """The 95th percentile of three waits over `max_num_seqs`, on a log scale, for the load that the
    slider stands on.

    Args:
        runs: load (as a share of the capacity) -> limit -> the result.

    Raises:
        ValueError: no load, or loads with different limits.
    """
    if not runs or len({tuple(results) for results in runs.values()}) > 1:
        raise ValueError("limit_curves needs the same limits at each load, and at least one load.")
    limits = list(next(iter(runs.values())))
    figure = new_figure(f"{title} (simulated)", height=430)
    stepper = Stepper(figure)
    told = []
    for load, results in runs.items():
        waits = {name: [_wait(results[limit], name) for limit in limits] for name, *_ in LINES}
        best = limits[min(range(len(limits)), key=waits["e2e"].__getitem__)]
        told.append(f"load {load:g}: {_in_words(limits, waits)}")
        lines = [_line(limits, waits[line[0]], *line) for line in LINES]
        caption = f"{load:g}: shortest answers with limit {best}"
        stepper.stop(caption, [(line, {}) for line in lines])
    figure.update_layout(margin={"b": 118})
    figure.update_layout(meta={"alt": f"{title} (simulated) {' '.join(told)}"})
    figure.update_xaxes(
        title_text="max_num_seqs, the most requests in a step", type="log", tickvals=limits,
        ticktext=[str(limit) for limit in limits], minor={"ticks": ""},
    )  # fmt: skip
    figure.update_yaxes(title_text=f"p{PERCENT} (ms, log)", type="log", dtick=1)
    return stepper.finish(start=len(runs) // 2, prefix="load ")


def _wait(result: LoadResult, name: str) -> float:
    return 1000 * result.percentile(name, PERCENT)


def _in_words(limits: list[int], waits: dict[str, list[float]]) -> str:
    ends = ", ".join(
        f"{label} {waits[name][0]:.3g} to {waits[name][-1]:.3g} ms" for name, label, *_ in LINES
    )
    return f"from limit {limits[0]} to {limits[-1]}, {ends}."


def _line(
    limits: list[int], y: list[float], name: str, label: str, colour: str, dash: str, symbol: str
) -> Any:
    return graph_objects().Scatter(
        name=label,
        x=limits,
        y=y,
        mode="lines+markers",
        line={"color": colour, "width": 2.5, "dash": dash},
        marker={"color": colour, "size": 8, "symbol": symbol},
        hovertemplate=f"limit %{{x}}: {name} p{PERCENT} %{{y:.3g}} ms<extra>simulated</extra>",
    )
