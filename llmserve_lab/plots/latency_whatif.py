"""Prefill and decode of requests by formula; a slider chooses the length of the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llmserve_lab.plots.latency_split import BASE_PIXELS, ROW_PIXELS, stage_bars
from llmserve_lab.plots.stepping import Stepper
from llmserve_lab.plots.theme import DECODE, PREFILL, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

Calculate = Callable[[int, int], tuple[float, float]]

BELOW = 70  # pixels, for the slider
PROMPTS = (128, 512, 2048, 3072)
OUTPUTS = (1, 4, 16, 32, 64, 128, 256, 512, 1024)


def latency_whatif(
    calculate: Calculate,
    prompts: Sequence[int] = PROMPTS,
    outputs: Sequence[int] = OUTPUTS,
    title: str = "Which stage would a user wait for?",
) -> go.Figure:
    """A bar for each prompt length, prefill and decode in seconds, for the answer length that the
    slider stands on. All numbers are calculated.

    Args:
        calculate: (prompt tokens, output tokens) -> seconds of prefill and of decode.

    Raises:
        ValueError: no prompt or no output length.
    """
    if not prompts or not outputs:
        raise ValueError("latency_whatif needs at least one prompt and one output length.")
    figure = new_figure(f"{title} (calculated)", BASE_PIXELS + BELOW + ROW_PIXELS * len(prompts))
    stepper = Stepper(figure)
    for count in outputs:
        parts = {f"{prompt:,} tokens": calculate(prompt, count) for prompt in prompts}
        longest = max(map(sum, parts.values()))
        bars = [
            stage_bars(mark, {name: part[i] for name, part in parts.items()}, longest, unit="s")
            for i, mark in enumerate((PREFILL, DECODE))
        ]
        stepper.stop(f"{count:,} token{'s' * (count != 1)}", [(bar, {}) for bar in bars])
    figure.update_layout(barmode="stack", legend_traceorder="normal", margin={"b": 118})
    figure.update_xaxes(title_text="latency (s)", rangemode="tozero")
    figure.update_yaxes(title_text="prompt", type="category", autorange="reversed", showgrid=False)
    figure.update_layout(meta={"alt": _in_words(title, calculate, prompts, outputs)})
    stepper.finish(start=len(outputs) // 2)
    figure.layout.sliders[0].currentvalue.prefix = "answer of "
    return figure


def _in_words(
    title: str, calculate: Calculate, prompts: Sequence[int], outputs: Sequence[int]
) -> str:
    cases = [(prompt, count) for prompt in prompts for count in (outputs[0], outputs[-1])]
    told = " ".join(
        f"Prompt {prompt}, answer {count}: prefill {calculate(prompt, count)[0]:.3g} s, "
        f"decode {calculate(prompt, count)[1]:.3g} s."
        for prompt, count in cases
    )
    return f"{title} (calculated) {told} A slider chooses the length of the answer."
