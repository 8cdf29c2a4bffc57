"""Graders whose answers are schedulers: a class, or the order of the lines of its plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.course.checks.grader import Arguments, Grader, told
from llmserve_lab.course.checks.result import describe
from llmserve_lab.course.own_scheduler import OwnScheduler
from llmserve_lab.course.plan_lines import LINES, assembled, first_wrong_pair


@dataclass(frozen=True, slots=True)
class SchedulerGrader(Grader):
    """The answer is a subclass of `OwnScheduler`; each case is a `Trial`."""

    def _require_answer(self, answer: Any) -> None:
        """What it is, each case looks at: it may be a class."""

    def _try(self, answer: Any, arguments: Arguments) -> None:
        __tracebackhide__ = True
        kind = answer() if callable(answer) and not isinstance(answer, type) else answer
        if not isinstance(kind, type) or not issubclass(kind, OwnScheduler):
            self._fail(
                arguments,
                f"expected a class that is an OwnScheduler, as in "
                f"check.{self.name}({self.reference.__name__}), got {describe(kind)}",
            )
        self._run(kind, arguments)

    def _run(self, kind: type[OwnScheduler], arguments: Arguments) -> None:
        __tracebackhide__ = True
        try:
            fault = arguments["trial"].fault(kind)
        except NotImplementedError:
            raise
        except Exception as error:
            self._fail(arguments, f"your plan raised {told(error)}", error)
        if fault:
            self._fail(arguments, fault)


@dataclass(frozen=True, slots=True)
class OrderGrader(SchedulerGrader):
    """The answer is a function that returns the letters of the plan's lines, from first to last.
    Every order is accepted whose plan works; of another the first wrong pair is named."""

    def _try(self, answer: Any, arguments: Arguments) -> None:
        __tracebackhide__ = True
        order = self._letters(answer, arguments)
        try:
            kind = assembled(order)
        except SyntaxError as error:
            self._fail(arguments, f"{_pair(order)}; in this order Python says: {error.msg}")
        try:
            fault = arguments["trial"].fault(kind)
        except Exception as error:
            fault = f"it raises {type(error).__name__}: {error}"
        if fault:
            self._fail(arguments, f"{_pair(order)}; as it stands, {fault}")

    def _letters(self, answer: Any, arguments: Arguments) -> str:
        __tracebackhide__ = True
        order = answer() if callable(answer) and not isinstance(answer, type) else answer
        if type(order) in (list, tuple) and all(type(letter) is str for letter in order):
            order = "".join(order)
        if type(order) is not str or sorted(order) != sorted(LINES):
            letters = "".join(LINES)
            self._fail(
                arguments,
                f"expected the letters {letters}, each once, as one text, got {describe(order)}",
            )
        return order


def _pair(order: str) -> str:
    """The first wrong pair, with its lines."""
    before, after = first_wrong_pair(order)
    line = f"{after} (`{LINES[after].strip()}`)"
    if before is None:
        return f"the plan cannot begin with {line}"
    first = LINES[before].strip()
    return f"the first wrong pair is {before}, {after}: after {before} (`{first}`) cannot be {line}"
