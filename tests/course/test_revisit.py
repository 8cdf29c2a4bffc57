"""What to look at again, from made-up progress."""

from __future__ import annotations

import pytest

from llmserve_lab.course import revisit
from llmserve_lab.course.chapter import chapters
from llmserve_lab.course.misconceptions import catalogue
from llmserve_lab.course.prediction import Prediction, Question, save
from llmserve_lab.course.progress import open_store
from llmserve_lab.course.quiz import questions

ONE, FOUR = "01_problem_setting", "04_decode"


def put(section, key, **entry):
    open_store().put(section, key, entry)


def keys_of(name):
    return [item["key"] for item in chapters()[name]["checklist"]]


def finish(name):
    """Everything ticked and refuted in one chapter."""
    put("chapters", name, opened=True, checked=keys_of(name))
    for key in catalogue():
        if key.startswith(name[:2]):
            put("beliefs", key, refuted=True)


def guess(key, value, measured, **changes):
    question = Question("How many?", low=0.0, high=100.0, unit="ms")
    values = {"confidence": 90, "source": "learner", "measured": measured, **changes}
    save(key, Prediction(question, value, **values))


def test_an_empty_store_says_where_to_start():
    found = revisit()
    assert found.reasons == {}
    assert found.text.endswith("Start with 00 Start here")
    assert "00 Start here" in found._repr_html_()


def test_a_finished_chapter_is_not_named():
    finish(ONE)
    found = revisit()
    assert found.reasons == {} and ONE not in found.unopened
    assert "nothing to look at again" in found.text


def test_only_what_is_not_ticked_and_not_refuted_comes_back():
    finish(ONE)
    first, *rest = chapters()[ONE]["checklist"]
    put("chapters", ONE, opened=True, checked=[item["key"] for item in rest])
    assert revisit().reasons == {ONE: (f"Not ticked: {first['text']}",)}
    open_store().reset("beliefs")
    beliefs = [item.belief for key, item in catalogue().items() if key.startswith("01.")]
    assert revisit().reasons[ONE][1:] == tuple(f'Not refuted yet: "{said}"' for said in beliefs)


def test_a_question_ticked_in_a_later_chapter_is_done():
    finish(ONE)
    finish("12_checklist")
    rest = [key for key in keys_of(ONE) if key != "doc1.tradeoff"]
    put("chapters", ONE, opened=True, checked=rest)
    assert revisit().reasons == {}


def test_guesses_far_off_but_no_defaults_late_or_good_ones():
    finish(ONE)
    guess("01.bad", 10.0, 40.0)
    guess("01.good", 10.0, 11.0)
    guess("01.late", 10.0, 40.0, late=True)
    guess("01.default", 10.0, 40.0, source="default")
    guess("01.open", 10.0, None)
    (said,) = revisit().reasons[ONE]
    assert "too low by a factor of 4. (90% sure)" in said


@pytest.mark.parametrize(
    ("tries", "solved", "named"),
    [([0], True, False), ([1, 0], True, True), ([1], False, True), ([], False, False)],
)
def test_a_quiz_counts_by_its_first_try(tries, solved, named):
    finish(ONE)
    put("quizzes", "01.tradeoff", tries=tries, solved=solved)
    expected = (f"Wrong at first try: {questions()['01.tradeoff']['question']}",)
    assert revisit().reasons.get(ONE) == (expected if named else None)


def test_points_that_an_answer_lacks_lead_to_the_chapter_of_the_question():
    finish(FOUR)
    put("answers", "doc1.decode-parallel", text="one by one", ticked=["input", "chain"])
    (said,) = revisit().reasons[FOUR]
    assert "names something that can run in parallel" in said and "fixed by" not in said
    put("answers", "doc1.decode-parallel", text="one by one", ticked=["input", "chain", "still"])
    assert revisit().reasons == {}


def test_the_chapter_with_most_reasons_comes_first_and_only_existing_files_are_links(
    tmp_path, monkeypatch
):
    put("chapters", ONE, opened=True, checked=[])
    finish(FOUR)
    guess("04.bad", 1.0, 90.0)
    (tmp_path / f"{FOUR}.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    found = revisit()
    assert list(found.reasons) == [ONE, FOUR]
    page = found._repr_html_()
    assert f'href="{FOUR}.ipynb"' in page and f'href="{ONE}.ipynb"' not in page


def test_entries_that_no_chapter_has_any_more_are_passed_over():
    finish(ONE)
    guess("kit.x", 1.0, 90.0)
    put("quizzes", "99.gone", tries=[1, 0], solved=True)
    put("answers", "gone", text="x", ticked=[])
    put("chapters", "99_gone", opened=True, checked=[])
    assert revisit().reasons == {}
