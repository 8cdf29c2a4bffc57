"""A guess is kept before the result, never lost, never blocking, and honestly compared."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from llmserve_lab.course import predict, reveal
from llmserve_lab.course.prediction import load
from llmserve_lab.course.progress import open_store
from llmserve_lab.widgets.page import WIDGET_MIME

module = import_module("llmserve_lab.course.predict")


def ask_number(key="k", **kwargs):
    predict(key, "How many?", low=1, high=100, unit="times", log=True, **kwargs)
    return module._live_cards()[key]


def ask_choice(key="c", **kwargs):
    predict(key, "Which way?", choices=["better", "same", "worse"], **kwargs)
    return module._live_cards()[key]


def test_a_guess_on_the_card_is_kept_and_confirmed(shown):
    card = ask_number()
    card.answer = {"guess": 8, "confidence": 90, "at": 1}
    assert card.recorded == {"guess": 8.0, "confidence": 90}
    kept = load("k")
    assert (kept.guess, kept.confidence, kept.source, kept.measured) == (8.0, 90, "learner", None)
    card.answer = {"guess": 9, "confidence": 60, "at": 2}  # changed before the result
    assert load("k").guess == 9.0


def test_a_choice_on_the_card_is_kept_as_its_text(shown):
    card = ask_choice()
    card.answer = {"guess": 2, "confidence": 55, "at": 1}
    assert load("c").guess == "worse"
    assert card.recorded == {"guess": 2, "confidence": 55}


@pytest.mark.parametrize(
    "answer", [{"at": 1}, {"guess": 7, "confidence": 70}, {"guess": 0, "confidence": 5}]
)
def test_a_broken_message_from_the_page_is_refused_on_the_card(shown, answer):
    card = ask_choice()
    card.answer = answer
    assert card.problem
    assert load("c").guess is None


def test_running_the_cell_again_keeps_the_guess(shown):
    ask_number(guess=8, confidence=90)
    card = ask_number()
    assert load("k").guess == 8.0
    assert card.recorded == {"guess": 8.0, "confidence": 90}
    assert not card.locked


def test_reveal_locks_the_card_and_the_guess(shown):
    card = ask_number(guess=8, confidence=90)
    reveal("k", 20.0)
    assert card.locked
    card.answer = {"guess": 20, "confidence": 100, "at": 3}
    assert load("k").guess == 8.0
    assert "first guess stands" in card.problem
    again = ask_number(guess=20, confidence=100)
    assert load("k").guess == 8.0
    assert again.locked
    assert load("k").measured == 20.0


def test_without_a_learner_the_default_stands_in_and_says_so(shown):
    ask_number(default=5)
    reveal("k", 20.0)
    kept = load("k")
    assert (kept.guess, kept.source, kept.confidence) == (5.0, "default", None)
    assert "default, not your guess" in shown[-1]["text/html"]
    assert not kept.confidently_wrong


def test_after_a_default_run_the_card_is_open_and_a_guess_is_marked_late(shown):
    ask_number(default=5)
    reveal("k", 20.0)
    card = ask_number(default=5)
    assert card.recorded == {}
    assert not card.locked
    card.answer = {"guess": 19, "confidence": 100, "at": 1}
    assert load("k").late
    reveal("k", 20.0)
    assert "after the result" in shown[-1]["text/plain"]


def test_a_guess_in_time_is_not_marked_late(shown):
    ask_number(guess=8, confidence=60)
    reveal("k", 9.0)
    reveal("k", 10.0)
    assert not load("k").late
    assert load("k").measured == 10.0


@pytest.mark.parametrize(
    ("guess", "measured", "words", "right"),
    [
        (10, 10.2, "within 2% of the measurement", True),
        (10, 15.0, "33% too low", True),
        (15, 10.0, "50% too high", True),
        (10, 40.0, "too low by a factor of 4", False),
        (50, 10.0, "too high by a factor of 5", False),
    ],
)
def test_the_error_is_told_in_one_sentence(shown, guess, measured, words, right):
    ask_number(guess=guess, confidence=60)
    reveal("k", measured)
    assert words in shown[-1]["text/plain"]
    assert load("k").right is right


@pytest.mark.parametrize(
    ("confidence", "measured", "warned"),
    [(80, 40.0, True), (75, 40.0, False), (100, 19.0, False), (90, 21.0, True)],
)
def test_only_a_confident_wrong_guess_gets_a_word_more(shown, confidence, measured, warned):
    ask_number(guess=10, confidence=confidence)
    reveal("k", measured)
    assert ("assumption" in shown[-1]["text/plain"]) is warned
    assert open_store().get("predictions", "k")["confidently_wrong"] is warned


def test_choices_are_right_or_wrong(shown):
    ask_choice(guess="worse", confidence=95)
    reveal("c", "worse")
    assert "is what was measured" in shown[-1]["text/plain"]
    ask_choice("d", guess=1, confidence=95)  # the first
    reveal("d", "worse")
    assert "is not what was measured" in shown[-1]["text/plain"]
    assert "assumption" in shown[-1]["text/plain"]


def test_numpy_numbers_are_numbers(shown):
    np = pytest.importorskip("numpy")
    ask_number(guess=np.float32(4), confidence=np.int64(60))
    reveal("k", np.float64(4.0))
    assert load("k").measured == 4.0


def test_bars_are_drawn_on_the_scale_of_the_question(shown):
    predict("lin", "How long?", low=0, high=100, unit="ms", guess=25, confidence=60)
    reveal("lin", 100.0)
    assert "width:25.0%" in shown[-1]["text/html"]
    assert "width:100.0%" in shown[-1]["text/html"]


def test_zero_and_negative_measurements_are_compared_by_difference(shown):
    predict("z", "Change?", low=-50, high=50, unit="%", guess=10, confidence=60)
    reveal("z", -5.0)
    assert "off by 15 %" in shown[-1]["text/plain"]


def test_a_changed_question_drops_a_guess_that_no_longer_fits(shown):
    ask_choice("q", guess="same", confidence=60)
    predict("q", "Which way?", choices=["up", "down"])
    assert load("q").guess is None


def test_text_in_questions_cannot_become_markup(shown):
    predict("x", "Is `a < b` **so**? <script>", choices=["<b>yes</b>", "no"])
    page = shown[-1]["text/html"]
    assert "<code>a &lt; b</code>" in page
    assert "<script>" not in page
    assert "<b>yes</b>" not in page


def test_without_anywidget_the_page_tells_how_to_answer(shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "llmserve_lab.widgets.cards", None)
    predict("f", "How many?", low=1, high=10)
    assert WIDGET_MIME not in shown[-1]
    assert "guess=5.5, confidence=70" in shown[-1]["text/html"]
    predict("f", "How many?", low=1, high=10, guess=8, confidence=70)
    assert "8.0, 70% sure" in shown[-1]["text/plain"]


def test_a_widget_brings_its_fallback_along(shown):
    ask_number()
    assert set(shown[-1]) == {WIDGET_MIME, "text/html", "text/plain"}


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({}, ValueError, "choices="),
        ({"low": 1}, ValueError, "low= and high="),
        ({"low": 1, "high": 2, "choices": ["a", "b"]}, ValueError, "not both"),
        ({"low": 2, "high": 2}, ValueError, "below high"),
        ({"low": 0, "high": 2, "log": True}, ValueError, "above 0"),
        ({"low": 0, "high": float("inf")}, ValueError, "finite"),
        ({"low": "a", "high": 2}, TypeError, "number"),
        ({"low": 0, "high": 2, "step": 0}, ValueError, "step"),
        ({"low": 0, "high": 2, "default": 3}, ValueError, "default"),
        ({"low": 0, "high": 2, "guess": 3}, ValueError, "from 0 to 2"),
        ({"low": 0, "high": 2, "guess": True}, TypeError, "number"),
        ({"low": 0, "high": 2, "guess": 1, "confidence": 40}, ValueError, "50 to 100"),
        ({"low": 0, "high": 2, "confidence": 60}, ValueError, "guess="),
        ({"choices": ["a"]}, ValueError, "two choices"),
        ({"choices": "ab"}, ValueError, "two choices"),
        ({"choices": ["a", "a"]}, ValueError, "the same"),
        ({"choices": ["a", "b"], "guess": "c"}, ValueError, "'a', 'b'"),
    ],
)
def test_bad_arguments_get_one_clear_sentence(shown, kwargs, error, words):
    with pytest.raises(error, match=words) as caught:
        predict("bad", "Well?", **kwargs)
    assert "\n" not in str(caught.value)
    assert load("bad") is None
    assert not shown


@pytest.mark.parametrize("key", ["", "  ", None, 3])
def test_a_key_is_a_text(key):
    with pytest.raises(ValueError, match="key"):
        predict(key, "Well?", choices=["a", "b"])
    with pytest.raises(ValueError, match="key"):
        reveal(key, 1)


def test_reveal_needs_a_prediction_and_a_fitting_measurement(shown):
    with pytest.raises(ValueError, match=r"predict\('none'"):
        reveal("none", 1.0)
    ask_choice(guess="same")
    with pytest.raises(ValueError, match="none of the choices"):
        reveal("c", "sideways")
    ask_number(guess=3)
    with pytest.raises(TypeError, match="number"):
        reveal("k", "many")
    assert load("c").measured is None
    assert load("k").measured is None


def test_guess_for_gives_pictures_the_learners_guess_and_no_default(shown):
    ask_number(default=7)
    assert module.guess_for("k") is None
    ask_number(guess=9)
    assert module.guess_for("k") == 9.0
