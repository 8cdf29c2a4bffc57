"""Tokens that a step brings with drafts: measured, and by the formula."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmserve_lab.plots.theme import CALCULATED, MEASURED, graph_objects, new_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

CURVES = {0.3: "dot", 0.7: "dash", 0.9: "longdash"}  # to compare with: how often right, dashes


def draft_gain(
    measured: Mapping[int, float],
    alpha: float,
    title: str = "How many tokens does a step bring?",
) -> go.Figure:
    """measured: number of drafts to tokens a step. alpha: the acceptance probability of these runs,
    whose curve is solid; others are dotted.

    Raises:
        ValueError: nothing measured.
    """
    from llmserve_lab.speculative import expected_tokens

    if not measured:
        raise ValueError("draft_gain needs at least one number of drafts.")
    figure = new_figure(title, 380)
    counts = list(range(max(measured) + 1))
    for value, dash in {**CURVES, alpha: "solid"}.items():
        curve = [expected_tokens(value, count) for count in counts]
        figure.add_trace(
            graph_objects().Scatter(
                name=f"calculated, {value:.0%} right", x=counts, y=curve, mode="lines",
                line={"color": CALCULATED.colour, "width": 3 if value == alpha else 1.4,
                      "dash": dash},
                hovertemplate=f"%{{x}} drafts, {value:.0%} right: %{{y:.2f}}<extra></extra>",
            )
        )  # fmt: skip
    figure.add_trace(
        graph_objects().Scatter(
            name="measured", x=list(measured), y=list(measured.values()), mode="markers",
            marker={"color": MEASURED.colour, "size": 11, "symbol": "diamond"},
            hovertemplate="%{x} drafts: %{y:.2f} tokens a step<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(title_text="drafts for each request and step", dtick=1)
    figure.update_yaxes(title_text="tokens a step", rangemode="tozero")
    points = ", ".join(f"{count}: {value:.2f}" for count, value in measured.items())
    figure.update_layout(
        showlegend=True, margin={"t": 108},
        meta={"alt": f"{title} By the number of drafts, measured: {points}. The curve for "
                     f"{alpha:.0%} right drafts levels off at {1 / (1 - min(alpha, 0.999)):.1f}."},
    )  # fmt: skip
    return figure
