"""A guess beside a measurement, as HTML and as text."""

from __future__ import annotations

import math

from llmserve_lab.course.prediction import Answer, Prediction
from llmserve_lab.widgets.page import inline, plain

CLOSE = 1.05  # a factor: nearer than this, the error is not worth a number
SURE_AND_WRONG = (
    "You were {confidence}% sure: before you read on, name the assumption behind your guess "
    "that does not hold."
)


def comparison(prediction: Prediction, unit: str) -> tuple[str, str]:
    """The picture of a revealed prediction (HTML) and what it says (text)."""
    whose = "your guess" if prediction.is_learners else "default, not your guess"
    guess, measured = _shown(prediction.guess, unit), _shown(prediction.measured, unit)
    sentences = [verdict(prediction, unit)]
    if prediction.confidently_wrong:
        sentences.append(SURE_AND_WRONG.format(confidence=prediction.confidence))
    if prediction.late:
        sentences.append("(You guessed after the result had been shown.)")
    rows = _rows(prediction, whose, guess, measured)
    state = {True: "is-right", False: "is-wrong", None: ""}[prediction.right]
    body = (
        '<div class="lsl lsl-card lsl-measured" role="group" aria-label="guess and measurement">'
        '<p class="lsl-kicker"><span>Guess against measurement</span>'
        f"<span>{_scale_note(prediction)}</span></p>"
        f'<p class="lsl-question">{inline(prediction.question.text)}</p>{rows}'
        f'<div class="lsl-feedback {state}">{" ".join(map(inline, sentences))}</div></div>'
    )
    text = f"{whose}: {guess}; measured: {measured}. {' '.join(sentences)}"
    return body, plain(text)


def verdict(prediction: Prediction, unit: str) -> str:
    """One neutral sentence: how far the guess is from the measurement."""
    subject = "Your guess" if prediction.is_learners else "The default"
    if prediction.question.choices:
        return f"{subject} {'is' if prediction.right else 'is not'} what was measured."
    factor = prediction.factor
    if factor is None:
        gap = float(prediction.measured or 0) - float(prediction.guess or 0)
        return f"{subject} is off by {_shown(abs(gap), unit)}."
    percent = abs(1 / factor - 1)
    if max(factor, 1 / factor) < CLOSE:
        return f"{subject} is within {math.ceil(percent * 100)}% of the measurement."
    way = "low" if factor > 1 else "high"
    times = max(factor, 1 / factor)
    if times < 2:
        return f"{subject} is {percent:.0%} too {way}."
    return f"{subject} is too {way} by a factor of {times:.3g}."


def _shown(value: Answer | None, unit: str) -> str:
    if not isinstance(value, float):
        return str(value)
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def _scale_note(prediction: Prediction) -> str:
    return "log scale" if prediction.question.log and not prediction.question.choices else ""


def _rows(prediction: Prediction, whose: str, guess: str, measured: str) -> str:
    named = (("is-guess", whose, guess), ("is-measured", "measured", measured))
    if prediction.question.choices:
        cells = [
            f'<span class="lsl-label">{name}</span><b>{inline(value)}</b><span></span>'
            for _, name, value in named
        ]
        return f'<div class="lsl-bars">{"".join(cells)}</div>'
    cells = []
    for (kind, name, value), share in zip(named, _shares(prediction), strict=True):
        cells.append(
            f'<span class="lsl-label">{name}</span><div class="lsl-track">'
            f'<div class="lsl-bar {kind}" style="width:{share:.1%}"></div></div>'
            f'<span class="lsl-value">{inline(value)}</span>'
        )
    return f'<div class="lsl-bars">{"".join(cells)}</div>'


def _shares(prediction: Prediction) -> tuple[float, float]:
    """The lengths of both bars as shares of the track, on the question's scale."""
    values = [float(v) for v in (prediction.guess, prediction.measured) if v is not None]
    low = prediction.question.low
    if prediction.question.log and min(values) > 0:
        floor = math.log(min(low, *values) / 2)  # so that the shortest bar still shows
        lengths = [math.log(value) - floor for value in values]
    else:
        floor = min(0.0, low, *values)
        lengths = [value - floor for value in values]
    longest = max(lengths) or 1.0
    return lengths[0] / longest, lengths[1] / longest
