"""A sentence is kept, and the explanation is there for whoever asks."""

from __future__ import annotations

import pytest

from llmserve_lab.course import because
from llmserve_lab.course.progress import open_store
from llmserve_lab.widgets import cards


@pytest.fixture
def box(monkeypatch):
    """The box that because() makes."""
    made = []
    original = cards.BecauseBox
    monkeypatch.setattr(cards, "BecauseBox", lambda **kw: made.append(original(**kw)) or made[-1])
    return made


def test_a_sentence_from_the_box_is_kept_and_confirmed(shown, box):
    because("k", "Why?", explain="So.")
    assert (box[0].saved, box[0].opened) == ("", False)
    box[0].text = "the weights are read once"
    assert box[0].saved == "the weights are read once"
    assert open_store().get("reasons", "k")["text"] == "the weights are read once"


def test_running_the_cell_again_keeps_sentence_and_explanation_open(shown, box):
    because("k", "Why?", explain="So.", text="read once")
    because("k", "Why?", explain="So.")
    assert (box[-1].saved, box[-1].opened) == ("read once", True)
    assert open_store().get("reasons", "k")["text"] == "read once"


def test_the_page_without_a_widget_folds_the_explanation(shown):
    because("k", "Why `x`?", explain="Because of **this**.")
    page = shown[-1]["text/html"]
    assert "<summary>The explanation</summary>" in page
    assert "<b>this</b>" in page
    assert "of **this**" not in shown[-1]["text/plain"]


@pytest.mark.parametrize(
    ("args", "error"),
    [(("", "Why?"), ValueError), (("k", " "), ValueError), (("k", "Why?", 3), TypeError)],
)
def test_bad_arguments_are_refused(args, error):
    with pytest.raises(error):
        because(*args)
