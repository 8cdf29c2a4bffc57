"""One prediction: what was asked, what was guessed and how surely, what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from llmserve_lab.course.progress import open_store

SECTION = "predictions"
RIGHT_FACTOR = 2.0  # a number within this factor of the measurement counts as right
SURE = 80  # percent: from here on a wrong guess is a confident one

Answer = str | float


@dataclass(frozen=True, slots=True)
class Question:
    """What a prediction asks for: one of `choices`, or a number from `low` to `high`."""

    text: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    unit: str = ""
    step: float | None = None
    log: bool = False
    default: Answer = ""

    @property
    def kind(self) -> str:
        return "choice" if self.choices else "number"

    def accept(self, value: Any, what: str = "guess") -> Answer:
        """`value` as an answer to this question.

        Raises:
            TypeError: it is not of the right kind.
            ValueError: it is not one of the choices, or not a number in the range.
        """
        if self.choices:
            return self._choice(value, what)
        number = finite(value, what)
        if what != "measurement" and not self.low <= number <= self.high:
            raise ValueError(
                f"The {what} must lie from {self.low:g} to {self.high:g}, not {number:g}."
            )
        return number

    def _choice(self, value: Any, what: str) -> str:
        if str(value) in self.choices:
            return str(value)
        if what == "guess" and type(value) is int and 1 <= value <= len(self.choices):
            return self.choices[value - 1]
        listed = ", ".join(repr(choice) for choice in self.choices)
        raise ValueError(f"The {what} {value!r} is none of the choices: {listed}.")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A question with what the learner said. `guess` is None until there is one.

    `source` is "learner" or "default" (a run in which nobody guessed); `late` marks a guess made
    after the result had been shown.
    """

    question: Question
    guess: Answer | None = None
    confidence: int | None = None  # percent, 50 to 100
    source: str = ""
    late: bool = False
    measured: Answer | None = None

    @property
    def is_learners(self) -> bool:
        return self.source == "learner"

    @property
    def locked(self) -> bool:
        """The learner guessed, and has seen the result."""
        return self.is_learners and self.measured is not None

    @property
    def factor(self) -> float | None:
        """Measured over guessed; None for a choice and where either is not positive."""
        if not isinstance(self.guess, float) or not isinstance(self.measured, float):
            return None
        return self.measured / self.guess if self.guess > 0 and self.measured > 0 else None

    @property
    def right(self) -> bool | None:
        """The choice that was measured, or a number within a factor of two; None: not known yet."""
        if self.measured is None or self.guess is None:
            return None
        if self.factor is not None:
            return 1 / RIGHT_FACTOR <= self.factor <= RIGHT_FACTOR
        return self.guess == self.measured

    @property
    def confidently_wrong(self) -> bool:
        return self.right is False and self.is_learners and (self.confidence or 0) >= SURE

    def guessed(self, value: Any, confidence: Any) -> Prediction:
        """With the learner's guess.

        Raises:
            TypeError, ValueError: the guess or the confidence is not one.
        """
        sure = finite(confidence, "confidence")
        if not 50 <= sure <= 100:
            raise ValueError(f"The confidence is a percentage from 50 to 100, not {sure:g}.")
        seen = self.measured is not None and not self.is_learners
        guess = self.question.accept(value)
        return replace(
            self, guess=guess, confidence=round(sure), source="learner", late=self.late or seen
        )

    def revealed(self, measured: Any) -> Prediction:
        """With the measurement, and with the default where nobody guessed."""
        value = self.question.accept(measured, "measurement")
        if self.is_learners:
            return replace(self, measured=value)
        return replace(self, guess=self.question.default, source="default", measured=value)


def finite(value: Any, what: str) -> float:
    """`value` as a float; numpy and torch scalars too.

    Raises:
        TypeError: it is no number.
        ValueError: it is not finite.
    """
    value = value.item() if callable(getattr(value, "item", None)) else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"The {what} must be a number, not {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"The {what} must be a finite number, not {value!r}.")
    return float(value)


def load(key: str) -> Prediction | None:
    """What the progress file holds under a key; None where it holds nothing usable."""
    entry = open_store().get(SECTION, key)
    if entry is None or not isinstance(entry.get("question"), dict):
        return None
    asked = {f.name: entry["question"].get(f.name) for f in fields(Question)}
    question = Question(**{**asked, "choices": tuple(asked["choices"] or ())})
    said = {f.name: entry[f.name] for f in fields(Prediction) if f.name in entry}
    return Prediction(**{**said, "question": question})


def save(key: str, prediction: Prediction) -> None:
    """Keep a prediction, with what is derived from it beside it for those who read the file."""
    entry = asdict(prediction)
    entry |= {
        "kind": prediction.question.kind,
        "right": prediction.right,
        "factor": prediction.factor,
        "confidently_wrong": prediction.confidently_wrong,
    }
    open_store().put(SECTION, key, entry)


def ask(
    text: str,
    choices: Sequence[Any] | None,
    low: Any,
    high: Any,
    unit: str,
    step: Any,
    log: bool,
    default: Any,
) -> Question:
    """A checked question.

    Raises:
        TypeError, ValueError: the arguments do not make one.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError("A prediction needs a question, a text that is not empty.")
    if choices is not None:
        if low is not None or high is not None:
            raise ValueError("Give either choices=[...] or low= and high=, not both.")
        return _ask_choice(text, choices, unit, default)
    if low is None or high is None:
        raise ValueError("Give choices=[...] for a choice, or low= and high= for a number.")
    return _ask_number(
        text, finite(low, "low end"), finite(high, "high end"), unit, step, log, default
    )


def _ask_choice(text: str, choices: Sequence[Any], unit: str, default: Any) -> Question:
    if isinstance(choices, str) or len(choices) < 2:
        raise ValueError("A prediction needs at least two choices, given as a list.")
    listed = tuple(str(choice) for choice in choices)
    if len(set(listed)) < len(listed):
        raise ValueError("Two choices of a prediction are the same.")
    question = Question(text, choices=listed, unit=unit, default=listed[0])
    return (
        question
        if default is None
        else replace(question, default=question.accept(default, "default"))
    )


def _ask_number(
    text: str, low: float, high: float, unit: str, step: Any, log: bool, default: Any
) -> Question:
    if low >= high:
        raise ValueError(f"low must be below high; they are {low:g} and {high:g}.")
    if log and low <= 0:
        raise ValueError(f"A logarithmic range begins above 0, not at {low:g}.")
    if step is not None and finite(step, "step") <= 0:
        raise ValueError(f"step must be above 0, not {step}.")
    middle = math.sqrt(low * high) if log else (low + high) / 2
    question = Question(text, (), low, high, unit, step, log, default=float(f"{middle:.2g}"))
    return (
        question
        if default is None
        else replace(question, default=question.accept(default, "default"))
    )
