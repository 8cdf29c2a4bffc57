import pytest

from llmserve_lab.course import check, hint, predict, progress, reset_progress, reveal
from llmserve_lab.course.checks import graders
from llmserve_lab.course.checks.ex01 import latency
from llmserve_lab.course.prediction import Prediction, Question
from llmserve_lab.course.progress import open_store
from llmserve_lab.course.report import calibration


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMSERVE_LAB_HOME", str(tmp_path))
    return tmp_path


def made(guess, measured, confidence, **changes):
    question = Question("How many?", low=0.0, high=100.0, unit="ms")
    values = {"confidence": confidence, "source": "learner", "measured": measured, **changes}
    return Prediction(question, guess, **values)


def test_on_a_fresh_machine_there_is_nothing_yet(home):
    report = progress()
    assert "None of your own predictions has been measured yet." in report.text
    assert str(home) in report.text and repr(report) == report.text


def test_it_tells_what_was_done(home):
    check.ex01_latency(latency)
    hint("01.3", 2)
    open_store().put("chapters", "00_start_here", {"opened": True, "checked": []})
    open_store().put("quizzes", "q", {"tries": [1], "solved": True})
    text = progress().text
    assert f"Exercises: 1 of {len(graders())} passed" in text
    assert "Exercise: 01.2; Result: passed; Tries: 1; Hints: 0 of 3" in text
    assert "Exercise: 01.3; Result: not yet; Tries: 0; Hints: 2 of 3" in text
    assert "Chapter: 00 Start here; Done: 0 of " in text
    assert "Quiz questions solved: 1. Misconceptions refuted: 0." in text


def test_a_prediction_shows_guess_confidence_measurement_and_error(home):
    from llmserve_lab.course.prediction import save

    save("01.x", made(10.0, 30.0, 90))
    text = progress().text
    assert "Guess: 10 ms; Confidence: 90%; Measured: 30 ms; Error: Your guess is too low" in text
    assert "Right: 0 of 1 when 90 to 100% sure." in text


def test_a_default_is_not_taken_for_a_guess(home):
    predict("00.a", "How many?", low=1, high=9, unit="ms")
    assert "Guess: none of yours; Measured: not yet" in progress().text
    reveal("00.a", 5)
    assert "Guess: none of yours; Measured: 5 ms" in progress().text
    assert "None of your own" in progress().text


def test_calibration_counts_each_band_of_confidence():
    items = [made(10.0, 10.0, 50), made(10.0, 90.0, 69), made(10.0, 11.0, 95), made(10.0, 9.0, 90)]
    late = made(10.0, 90.0, 95, late=True)
    said = calibration(dict(enumerate([*items, late, made(10.0, None, 80)])))
    assert said == (
        "Right: 1 of 2 when 50 to 69% sure, 2 of 2 when 90 to 100% sure. "
        "On average you were 76% sure and 75% of your predictions were right."
    )


def test_the_page_holds_the_same_and_is_escaped(home):
    from llmserve_lab.course.prediction import save

    question = Question("Is a < b & c?", choices=("yes", "no"), default="yes")
    save("01.y", Prediction(question, "yes", 60, "learner", False, "no"))
    page = progress()._repr_html_()
    assert "Is a &lt; b &amp; c?" in page and "<script" not in page
    assert page.count("<tr>") == 2 and ">60%<" in page


def test_reset_of_one_section_and_of_all(home):
    check.ex01_latency(latency)
    hint("01.3")
    open_store().put("quizzes", "q", {"tries": [], "solved": True})
    assert repr(reset_progress("quizzes")).startswith("1 entry was forgotten")
    assert repr(reset_progress()).startswith("2 entries were forgotten")
    assert open_store().items("exercises") == {}
    with pytest.raises(ValueError, match="no section 'all'; there are predictions"):
        reset_progress("all")
