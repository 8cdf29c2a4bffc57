"""Throughput against time per token, by formula, along the batch; a slider moves the context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log10
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import KV_CACHE, NEUTRAL, OWNERS, WEIGHTS, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

Row = Mapping[str, Any]
Calculate = Callable[[str, int], Sequence[Row]]

DASHES = ("solid", "dash", "dot", "dashdot")
BOUNDS = {  # what takes most of the step: colour and symbol
    "weights": (WEIGHTS.colour, "circle"),
    "KV cache": (KV_CACHE.colour, "diamond"),
    "arithmetic": (OWNERS[6], "square"),
}
MARGINS = (0.12, 0.22)  # of a decade, below the points and above them, for the text there
SIDES = ("bottom center", "top left")  # of the number at a line's end, in turn


def gpu_tradeoff(
    calculate: Calculate,
    gpus: Sequence[str],
    contexts: Sequence[int],
    title: str = "What does a larger batch buy, and what ends it?",
) -> go.Figure:
    """A line for each GPU from batch 1 to the largest whose KV cache fits, with a mark at each
    doubling that says what takes most of the step. All numbers are calculated.

    Args:
        calculate: (GPU, context) -> rows of `batch`, `tpot_ms`, `tokens_per_second` and `bound`,
            one of "weights", "KV cache" and "arithmetic"; at least one.

    Raises:
        ValueError: no GPU or no context, or none of the rows.
    """
    if not gpus or not contexts:
        raise ValueError("gpu_tradeoff needs at least one GPU and one context.")
    rows = {(c, g): list(calculate(g, c)) for c in contexts for g in gpus}
    if not all(rows.values()):
        raise ValueError("calculate must give at least one batch for each GPU and context.")
    figure = new_figure(f"{title} (calculated)", height=470)
    stepper = Stepper(figure)
    for name, (colour, symbol) in BOUNDS.items():
        stepper.always(_key(name, colour, symbol))
    told = []
    for context in contexts:
        cases = {gpu: rows[context, gpu] for gpu in gpus}
        told.append(f"context {context:,}: {_in_words(cases)}")
        lines = [
            _line(*each) for each in zip(gpus, cases.values(), DASHES, SIDES * 2, strict=False)
        ]
        stepper.stop(f"{context:,} tokens", [(line, {}) for line in lines])
    _axes(figure, [row for case in rows.values() for row in case])
    figure.update_layout(meta={"alt": f"{title} (calculated) {' '.join(told)}"})
    return stepper.finish(start=len(contexts) // 2, prefix="context ")


def _line(gpu: str, rows: Sequence[Row], dash: str, side: str) -> Any:
    labels = [""] * (len(rows) - 1) + [f"{gpu}, batch {rows[-1]['batch']}"]
    return graph_objects().Scatter(
        name=gpu,
        x=[row["tpot_ms"] for row in rows],
        y=[row["tokens_per_second"] for row in rows],
        customdata=[[row["batch"], row["bound"]] for row in rows],
        text=labels,
        textposition=side,
        mode="lines+markers+text",
        line={"color": NEUTRAL, "width": 2, "dash": dash},
        marker={
            "color": [BOUNDS[row["bound"]][0] for row in rows],
            "symbol": [BOUNDS[row["bound"]][1] for row in rows],
            "size": 9,
        },
        hovertemplate=(
            f"{gpu}, batch %{{customdata[0]}}: %{{y:.4s}} tokens/s at %{{x:.3g}} ms"
            "<extra>most of the step: %{customdata[1]}</extra>"
        ),
    )


def _key(name: str, colour: str, symbol: str) -> Any:
    return graph_objects().Scatter(
        name=f"most of the step: {name}",
        x=[None],
        y=[None],
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 9},
    )


def _axes(figure: go.Figure, rows: Sequence[Row]) -> None:
    for update, name, title in (
        (figure.update_xaxes, "tpot_ms", "time per token of each request (ms, log)"),
        (figure.update_yaxes, "tokens_per_second", "tokens/s, all requests (log)"),
    ):
        values = [row[name] for row in rows]
        low, high = log10(min(values)) - MARGINS[0], log10(max(values)) + MARGINS[1]
        update(title_text=title, type="log", range=[low, high], dtick="D2")
    figure.update_layout(margin={"t": 124, "b": 118})


def _in_words(cases: Mapping[str, Sequence[Row]]) -> str:
    return " ".join(
        f"{gpu} from {_point(rows[0])} to {_point(rows[-1])}, batch {rows[-1]['batch']}, "
        f"mostly {rows[-1]['bound']}."
        for gpu, rows in cases.items()
    )


def _point(row: Row) -> str:
    return f"{row['tokens_per_second']:,.0f} tokens/s at {row['tpot_ms']:.3g} ms"
