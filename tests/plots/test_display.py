"""show() works in every front end and refuses what a reader could not read."""

from __future__ import annotations

import json
import subprocess
import sys

import plotly.graph_objects as go
import pytest

from llmserve_lab import plots
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import PLOTLY_MIME, bundle


def figure(**layout) -> go.Figure:
    fig = go.Figure(go.Scatter(name="speed", x=[1, 2], y=[3.0, 4.5]))
    titles = {"title_text": "How fast?", "xaxis_title_text": "n", "yaxis_title_text": "time (s)"}
    return fig.update_layout(**{**titles, **layout})


def shown(monkeypatch, *args, **kwargs) -> list[dict]:
    calls: list[dict] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: calls.append(data))
    plots.show(*args, **kwargs)
    return calls


def test_bundle_serves_lab_colab_and_text():
    data = bundle(figure(), "words")
    assert set(data) == {PLOTLY_MIME, "text/html", "text/plain"}
    assert data["text/plain"] == "words"
    assert data[PLOTLY_MIME]["config"]["displayModeBar"] is False
    assert data[PLOTLY_MIME]["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
    assert "width" not in data[PLOTLY_MIME]["layout"]
    assert len(json.dumps(data)) < 40_000  # plotly.js itself is never stored
    assert "words" in data["text/html"]


def test_show_adds_the_alternative_text(monkeypatch):
    picture, note = shown(monkeypatch, figure(), alt="It <grows>.")
    assert picture["text/plain"] == "It <grows>."
    assert "It &lt;grows&gt;." in note["text/html"]


def test_show_leaves_the_figure_as_it_was(monkeypatch):
    fig = figure(width=300)
    before = fig.to_json()
    shown(monkeypatch, fig)
    assert fig.to_json() == before


def test_description_names_title_axes_and_values():
    text = describe(figure())
    assert text == "How fast? speed (time (s) over n): 3 at 1, 4.5 at 2."


@pytest.mark.parametrize(
    ("fig", "words"),
    [
        (go.Figure(), "no data"),
        (go.Figure(go.Scatter(x=[], y=[])), "no data"),
        (figure(title_text=None), "no title"),
        (figure(xaxis_title_text=""), "xaxis has no title"),
        (figure(yaxis_title_text="<b></b>"), "yaxis has no title"),
    ],
)
def test_show_refuses_what_cannot_be_read(fig, words):
    with pytest.raises(ValueError, match=words):
        plots.show(fig)


def test_a_hidden_axis_needs_no_title(monkeypatch):
    assert shown(monkeypatch, figure(xaxis_title_text="", xaxis_visible=False))


def test_show_refuses_other_things():
    with pytest.raises(TypeError, match="plotly Figure, not list"):
        plots.show([1])


@pytest.mark.parametrize("name", ["llmserve_lab.plots", "llmserve_lab.widgets"])
def test_importing_stays_light(name):
    heavy = "('torch', 'plotly', 'anywidget', 'ipywidgets')"
    code = f"import sys, {name}; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
