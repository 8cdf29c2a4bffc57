"""The questions are well made, every answer is explained, and tries are kept."""

from __future__ import annotations

from importlib import import_module

import pytest

from llmserve_lab.course import quiz
from llmserve_lab.course.course_data import read_folder, without_duplicates
from llmserve_lab.course.progress import open_store
from llmserve_lab.widgets import cards

module = import_module("llmserve_lab.course.quiz")
KEYS = sorted(module.questions())


@pytest.mark.parametrize("key", KEYS)
def test_each_question_has_one_right_answer_and_explains_all(key):
    item = module.questions()[key]
    assert set(item) == {"question", "choices"}
    assert item["question"].strip().endswith("?")
    choices = item["choices"]
    assert 2 <= len(choices) <= 9  # number keys 1 to 9
    assert sum(bool(choice.get("right")) for choice in choices) == 1
    assert len({choice["text"] for choice in choices}) == len(choices)
    for choice in choices:
        assert set(choice) <= {"text", "why", "right"}
        assert len(choice["why"].split()) >= 5


def test_the_right_answer_is_not_always_in_the_same_place():
    places = {
        next(i for i, c in enumerate(item["choices"]) if c.get("right"))
        for item in module.questions().values()
    }
    assert len(places) > 1


def test_a_key_written_twice_is_refused():
    with pytest.raises(ValueError, match="'a'"):
        without_duplicates([("a", 1), ("a", 2)])


def test_each_file_holds_the_questions_of_its_chapter():
    for number, asked in read_folder("quizzes").items():
        assert all(key.startswith(f"{number}.") for key in asked)


@pytest.fixture
def made(monkeypatch):
    made = []
    original = cards.QuizCard
    monkeypatch.setattr(cards, "QuizCard", lambda **kw: made.append(original(**kw)) or made[-1])
    return made


def test_tries_on_the_card_are_kept(shown, made):
    quiz("00.engine")
    made[0].state = {"00.engine": {"tries": [0], "solved": False}}
    made[0].state = {"00.engine": {"tries": [0, 1], "solved": True}}
    assert open_store().get("quizzes", "00.engine") == {"tries": [0, 1], "solved": True}
    quiz("00.engine")
    assert made[1].state == {"00.engine": {"tries": [0, 1], "solved": True}}


def test_a_state_for_an_unknown_question_is_not_kept(shown, made):
    quiz("00.engine")
    made[0].state = {"no.such": {"tries": [0], "solved": True}}
    assert open_store().items("quizzes") == {}


def test_an_answer_can_be_given_as_an_argument(shown, capsys):
    quiz("00.engine", answer=1)
    assert capsys.readouterr().out.startswith("Not this one. ")
    quiz("00.engine", answer=2)
    assert capsys.readouterr().out.startswith("Right. ")
    assert open_store().get("quizzes", "00.engine") == {"tries": [0, 1], "solved": True}


def test_the_page_without_a_widget_explains_each_choice(shown):
    quiz("00.engine")
    page = shown[-1]["text/html"]
    assert page.count("<details>") == 4
    assert page.count("<b>Right.</b>") == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [(("no.such",), "00.engine"), (("00.engine", 5), "1 to 4"), (("00.engine", "2"), "1 to 4")],
)
def test_unknown_keys_and_answers_are_refused(shown, args, words):
    with pytest.raises(ValueError, match=words):
        quiz(*args)
    assert not shown
