"""An answer and its ticks are kept; the model answer is folded until something is written."""

from __future__ import annotations

import pytest

from llmserve_lab.course import explain
from llmserve_lab.course.chapter import chapters, number
from llmserve_lab.course.explain import all_asked
from llmserve_lab.course.progress import open_store
from llmserve_lab.widgets import cards

KEY = "doc1.stages"
FIRST = all_asked()[KEY]["points"][0]["key"]


@pytest.fixture
def made(monkeypatch):
    """The cards that explain() makes."""
    boxes = []
    original = cards.ExplainCard
    monkeypatch.setattr(
        cards, "ExplainCard", lambda **kw: boxes.append(original(**kw)) or boxes[-1]
    )
    return boxes


def kept():
    return open_store().get("answers", KEY)


def test_what_the_card_sends_is_kept_and_confirmed(shown, made):
    explain(KEY)
    assert (made[0].saved, made[0].opened, made[0].ticked) == ("", False, [])
    made[0].text = "prefill, then decode"
    made[0].ticked = [FIRST]
    assert made[0].saved == "prefill, then decode"
    assert kept() == {"text": "prefill, then decode", "ticked": [FIRST]}
    explain(KEY)
    assert (made[1].saved, made[1].opened, made[1].ticked) == (made[0].saved, True, [FIRST])


def test_arguments_answer_where_there_is_no_card(shown):
    explain(KEY, text="both stages", ticked=[1])
    assert kept() == {"text": "both stages", "ticked": [FIRST]}
    page = shown[-1]["text/html"]
    assert page.count("[x]") == 1 and "both stages" in page
    folded = page.partition("<details>")[2]
    assert "T_prefill + T_decode" in folded and "T_prefill + T_decode" not in page[: -len(folded)]
    assert "both stages" in shown[-1]["text/plain"]
    explain(KEY, ticked=[])
    assert kept() == {"text": "both stages", "ticked": []}


@pytest.mark.parametrize("ticked", [[0], [5], ["1"], [True]])
def test_a_point_that_there_is_not_is_refused_and_nothing_kept(shown, ticked):
    with pytest.raises(ValueError, match="from 1 to 4"):
        explain(KEY, text="both", ticked=ticked)
    assert kept() is None


def test_an_unknown_question_and_a_text_that_is_none():
    with pytest.raises(ValueError, match=r"no question 'x'; there are doc1\."):
        explain("x")
    with pytest.raises(TypeError, match="text= is a text, not int"):
        explain(KEY, text=3)


def test_every_question_is_in_a_checklist_of_its_chapter_and_has_points():
    by_number = {number(name): chapter for name, chapter in chapters().items()}
    for key, item in all_asked().items():
        asked = [entry["key"] for entry in by_number[item["chapter"]]["checklist"]]
        assert key in asked
        points = [point["key"] for point in item["points"]]
        assert 3 <= len(points) <= 4 and len(set(points)) == len(points)
    assert len(all_asked()) == 5
