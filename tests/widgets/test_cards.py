"""The cards' scripts and styles: whole, shared, and in the colours of the figures."""

from __future__ import annotations

import pytest

from llmserve_lab import widgets
from llmserve_lab.plots.theme import MARKS
from llmserve_lab.widgets import page

CARDS = [
    widgets.PredictCard,
    widgets.QuizCard,
    widgets.BecauseBox,
    widgets.ChecklistCard,
    widgets.ExplainCard,
]


@pytest.mark.parametrize("card", CARDS)
def test_each_card_keeps_its_keys_to_itself(card):
    script = str(card()._esm)
    assert "export default { render }" in script
    assert "stopPropagation" in script
    assert "card(el," in script  # which guards the root against leaking keys


@pytest.mark.parametrize("name", ["prefill", "decode", "guess", "measured"])
def test_cards_and_figures_share_their_colours(name):
    assert f"--lsl-{name}: {MARKS[name].colour};" in page.asset("kit.css")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a < b & c", "a &lt; b &amp; c"),
        ("`x*y*z`", "<code>x*y*z</code>"),
        ("**so** and *so*", "<b>so</b> and <em>so</em>"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("one\ntwo", "one<br>two"),
    ],
)
def test_inline_text_is_safe_and_lightly_marked(text, html):
    assert page.inline(text) == html


def test_plain_text_has_no_marks():
    assert page.plain("**a** `b<c`\n*d*") == "a b<c d"


def test_without_a_notebook_the_text_is_printed(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "IPython.display", None)
    page.emit("<p>x</p>", "plain words")
    assert capsys.readouterr().out == "plain words\n"


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        widgets.nothing  # noqa: B018
