"""`show`: the single way in which a figure reaches the page."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.describe import axis_of, describe, plain
from llmserve_lab.plots.theme import TRANSPARENT, graph_objects, template

if TYPE_CHECKING:
    import plotly.graph_objects as go

CONFIG = {"displayModeBar": False, "showTips": False}
PLOTLY_MIME = "application/vnd.plotly.v1+json"


def show(fig: go.Figure, alt: str | None = None) -> None:
    """Display a figure: as wide as its cell, on any theme, with `alt` as its alternative text.

    JupyterLab takes the plotly bundle and needs no network; Colab and exported HTML take the
    HTML, which loads plotly.js. Without a notebook, the alternative text is printed.

    Raises:
        TypeError: `fig` is not a plotly Figure.
        ValueError: the figure has no data, no title, or an axis without a title.
    """
    if not isinstance(fig, graph_objects().Figure):
        raise TypeError(f"show() takes a plotly Figure, not {type(fig).__name__}.")
    require_readable(fig)
    text = alt or describe(fig)
    try:
        from IPython.display import display
    except ImportError:
        print(text)
        return
    display(bundle(fig, text), raw=True)
    display({"text/html": _note(text), "text/plain": ""}, raw=True)


def bundle(fig: go.Figure, text: str) -> dict[str, Any]:
    """What every front end can choose from: plotly's bundle, HTML, plain text."""
    styled = _styled(fig)
    page_config = CONFIG | {"responsive": True}  # JupyterLab resizes by itself, and better
    content = json.loads(styled.to_json())
    page = styled.to_html(full_html=False, include_plotlyjs="cdn", config=page_config)
    wait = f'<p class="lsl-figure-wait">{html.escape(text)}</p>'
    return {
        PLOTLY_MIME: {"data": content["data"], "layout": content["layout"], "config": CONFIG},
        "text/html": f'<div class="lsl-figure">{wait}{page}</div>',
        "text/plain": text,
    }


def require_readable(fig: go.Figure) -> None:
    """Raise ValueError where a reader could not tell what is drawn."""
    if not fig.data or not any(_has_values(trace) for trace in fig.data):
        raise ValueError("This figure has no data to show; add a trace with values first.")
    if not plain(fig.layout.title.text):
        raise ValueError("This figure has no title; set title_text to the question it answers.")
    for trace in fig.data:
        for letter in ("x", "y"):
            _require_axis_title(fig, trace, letter)


def _require_axis_title(fig: go.Figure, trace: Any, letter: str) -> None:
    axis = axis_of(fig, trace, letter)
    if axis is None or axis.visible is False or axis.showticklabels is False:
        return
    if not plain(axis.title.text):
        raise ValueError(
            f"The {axis.plotly_name} has no title; name the quantity and its unit, "
            f"such as fig.update_{letter}axes(title_text='time (s)')."
        )


def _has_values(trace: Any) -> bool:
    names = ("x", "y", "z", "values", "r", "header")
    return any(
        trace[name] is not None and any(True for value in trace[name] if value is not None)
        for name in names
        if name in trace
    )


def _styled(fig: go.Figure) -> go.Figure:
    """A copy in the course's style, as wide as its cell."""
    styled: go.Figure = graph_objects().Figure(fig)
    styled.update_layout(
        template=template(),
        paper_bgcolor=TRANSPARENT,
        plot_bgcolor=TRANSPARENT,
        autosize=True,
        width=None,
    )
    return styled


def _note(text: str) -> str:
    """The alternative text, hidden from view, and the keyboard for the figure above it."""
    assets = files("llmserve_lab.plots")
    style = (assets / "figure.css").read_text(encoding="utf-8")
    script = (assets / "figure_keys.js").read_text(encoding="utf-8")
    note = f'<p class="lsl-figure-note">{html.escape(text)}</p>'
    return f"<div><style>{style}</style>{note}<script>{script}</script></div>"
