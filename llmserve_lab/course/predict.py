"""Predict before you run: a card that keeps a guess, and the picture that holds it to account."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from llmserve_lab.course.comparison import comparison
from llmserve_lab.course.prediction import Prediction, Question, ask, finite, load, save
from llmserve_lab.widgets.page import cards, emit, inline, plain

CONFIDENCE = 70  # percent, of a guess given as an argument without one


def predict(
    key: str,
    question: str,
    choices: Sequence[Any] | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    step: float | None = None,
    log: bool = False,
    default: Any = None,
    guess: Any = None,
    confidence: float | None = None,
) -> None:
    """Ask for a guess and a confidence before the result is shown; never wait for it.

    Args:
        key: names the prediction, as in "01.throughput"; `reveal` takes the same key.
        choices: the possible answers, or else `low` and `high`, the ends of a range of numbers
            in `unit`. `log` spaces the slider logarithmically; `step` rounds to multiples.
        default: what a run without a learner uses: the first choice or the middle, unless given.
        guess, confidence: answer here instead of on the card (confidence: 50 to 100 percent).

    Raises:
        TypeError, ValueError: the arguments make no question, or `guess` no answer to it.
    """
    prediction = _resume(key, ask(question, choices, low, high, unit, step, log, default))
    problem = ""
    if guess is not None:
        sure = CONFIDENCE if confidence is None else confidence
        problem, prediction = _guess(prediction, guess, sure)
    elif confidence is not None:
        raise ValueError("confidence= goes with guess=; give both.")
    save(key, prediction)
    _show_card(key, prediction, problem)


def reveal(key: str, measured: Any, unit: str | None = None) -> None:
    """Draw the guess against the measurement and keep both.

    Where nobody guessed, the default stands in and is marked as such.

    Raises:
        ValueError: nothing was predicted under this key, or the measurement is none of the choices.
        TypeError: the measurement of a number is no number.
    """
    prediction = _require(key)
    prediction = prediction.revealed(measured)
    save(key, prediction)
    card = _live_cards().get(key)
    if card is not None:
        card.locked = prediction.locked
    body, text = comparison(prediction, prediction.question.unit if unit is None else unit)
    emit(body, text)


def guess_for(key: str) -> Any:
    """The learner's guess under a key, for a picture to draw; None where nobody guessed.

    Raises:
        ValueError: nothing was predicted under this key.
    """
    prediction = _require(key)
    return prediction.guess if prediction.is_learners else None


def _require(key: Any) -> Prediction:
    prediction = load(_checked_key(key))
    if prediction is None:
        raise ValueError(
            f"There is no prediction {key!r} yet: run the cell with predict({key!r}, ...) first."
        )
    return prediction


def _checked_key(key: Any) -> str:
    if not isinstance(key, str) or not key.strip():
        raise ValueError(f"A prediction has a key such as '01.throughput', not {key!r}.")
    return key


def _resume(key: str, question: Question) -> Prediction:
    """What was kept under the key, if it still answers this question; else a fresh prediction."""
    kept = load(_checked_key(key))
    if kept is None or kept.question.kind != question.kind:
        return Prediction(question)
    try:
        if kept.guess is not None:
            question.accept(kept.guess)
    except (TypeError, ValueError):  # the question has changed since
        return Prediction(question)
    measured = kept.measured if kept.question.choices == question.choices else None
    if kept.is_learners:
        return Prediction(question, kept.guess, kept.confidence, kept.source, kept.late, measured)
    return Prediction(question, measured=measured)


def _guess(prediction: Prediction, guess: Any, confidence: float) -> tuple[str, Prediction]:
    """The prediction with a guess, or with a reason why it stays as it is."""
    changed = prediction.guessed(guess, confidence)
    if not prediction.locked:
        return "", changed
    if changed.guess == prediction.guess:
        return "", prediction
    return "The result has been shown, so your first guess stands.", prediction


def _show_card(key: str, prediction: Prediction, problem: str) -> None:
    question = prediction.question
    body, text = _fallback(key, prediction, problem)
    module = cards()
    if module is None:
        emit(body, text)
        return
    spec = {
        "question": inline(question.text),
        "kind": question.kind,
        "choices": [inline(choice) for choice in question.choices],
        "low": question.low,
        "high": question.high,
        "step": question.step,
        "log": question.log,
        "unit": question.unit,
        "hint": _hint(prediction),
    }
    card = module.PredictCard(
        spec=spec, recorded=_recorded(prediction), locked=prediction.locked, problem=problem
    )
    card.observe(lambda change: _on_answer(key, question, card, change["new"]), "answer")
    _live_cards()[key] = card
    emit(body, text, card)


def _on_answer(key: str, question: Question, card: Any, answer: dict[str, Any]) -> None:
    """The learner sent a guess: keep it, and say so on the card."""
    prediction = load(key) or Prediction(question)
    try:
        value = answer["guess"]
        if prediction.question.choices:
            value = prediction.question.choices[int(value)]
        problem, prediction = _guess(prediction, value, finite(answer["confidence"], "confidence"))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        card.problem = str(error)
        return
    save(key, prediction)
    card.problem, card.locked = problem, prediction.locked
    card.recorded = {}  # so that the same guess, sent again, is confirmed again
    card.recorded = _recorded(prediction)


def _recorded(prediction: Prediction) -> dict[str, Any]:
    if not prediction.is_learners:
        return {}
    guess = prediction.guess
    if prediction.question.choices:
        guess = prediction.question.choices.index(str(guess))
    return {"guess": guess, "confidence": prediction.confidence}


def _hint(prediction: Prediction) -> str:
    if prediction.measured is not None:
        return "The result was shown before; a guess now is marked as made after it."
    return "You can change it until the result is shown."


def _fallback(key: str, prediction: Prediction, problem: str) -> tuple[str, str]:
    """The card without a widget: HTML, and plain text."""
    question = prediction.question
    if question.choices:
        listed = "".join(f"<li>{inline(choice)}</li>" for choice in question.choices)
        range_html, range_text = f"<ol>{listed}</ol>", " / ".join(map(plain, question.choices))
    else:
        range_text = f"{question.low:g} to {question.high:g} {question.unit}".strip()
        range_html = f"<p>{inline(range_text)}</p>"
    said = "No guess yet."
    if prediction.is_learners:
        said = f"Your guess: {plain(str(prediction.guess))}, {prediction.confidence}% sure."
    example = repr(question.choices[0]) if question.choices else f"{question.default:g}"
    how = f"predict({key!r}, ..., guess={example}, confidence=70)"
    body = (
        '<div class="lsl lsl-card lsl-guess"><p class="lsl-kicker">Predict</p>'
        f'<p class="lsl-question">{inline(question.text)}</p>{range_html}'
        f'<p>{inline(problem or said)}</p><p class="lsl-muted">No buttons here? Answer with '
        f"<code>{inline(how)}</code>.</p></div>"
    )
    return body, f"Predict: {plain(question.text)} [{range_text}] {problem or said}"


@lru_cache(maxsize=1)
def _live_cards() -> WeakValueDictionary[str, Any]:
    """The cards on the page, by key: revealing locks them."""
    return WeakValueDictionary()
