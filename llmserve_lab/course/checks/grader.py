"""One exercise's grader: hidden seeded cases, a reference, hints, and wrong answers it rejects."""

from __future__ import annotations

import copy
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from llmserve_lab.course.checks.result import Shape, describe, mutable_parts, same, shorten
from llmserve_lab.course.note import Note
from llmserve_lab.course.progress import open_store

Answer = Callable[..., Any]
Arguments = dict[str, Any]  # by the parameter's name; passed by position

SECTION = "exercises"
SEEDS = (1, 2, 3)
HINT_LEVELS = 3


class CheckFailed(AssertionError):
    """An answer is not right yet. Jupyter shows the message alone, without our own frames."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True, slots=True)
class Grader:
    """Call it with the learner's function.

    `cases(rng)` gives the inputs, simplest first. `mutants` are wrong answers, each by the mistake
    it makes; the tests require that every one is rejected for every seed.
    """

    key: str  # "01.2"
    name: str  # "ex01_latency"
    reference: Answer
    shape: Shape
    cases: Callable[[random.Random], list[Arguments]]
    hints: tuple[str, str, str]
    mutants: dict[str, Answer]

    def __call__(self, answer: Answer) -> Note:
        """Say that the answer is right, and record it.

        Raises:
            CheckFailed: it is not; the message names the input, what was expected and what came.
            NotImplementedError: from the answer itself, where it is still blank.
        """
        __tracebackhide__ = True  # Jupyter then shows only the learner's own lines
        count = 0
        try:
            for seed in SEEDS:
                count += self.grade(answer, seed)
        except CheckFailed as failure:
            self._record(passed=False)
            raise CheckFailed(f"{failure}\n{self._next_hint()}") from failure.__cause__
        self._record(passed=True)
        return Note(f"Exercise {self.key}: right, on all {count} hidden cases.")

    def grade(self, answer: Answer, seed: int) -> int:
        """Try one seed's cases; records nothing. Returns how many there were.

        Raises:
            CheckFailed, NotImplementedError: as above.
        """
        __tracebackhide__ = True
        self._require_answer(answer)
        cases = self.cases(random.Random(seed))
        for arguments in cases:
            self._try(answer, arguments)
        return len(cases)

    def _require_answer(self, answer: Any) -> None:
        __tracebackhide__ = True
        if not callable(answer) or isinstance(answer, type):
            raise CheckFailed(
                f"Exercise {self.key}: hand over your function itself, without calling it, as in "
                f"check.{self.name}({self.reference.__name__}); got {describe(answer)}."
            )

    def _try(self, answer: Answer, arguments: Arguments) -> None:
        __tracebackhide__ = True
        expected = self.reference(**copy.deepcopy(arguments))
        first = self._call(answer, arguments)
        if fault := self.shape.compare(expected, first):
            self._fail(arguments, fault)
        second = self._call(answer, arguments)
        if fault := self.shape.compare(expected, second):
            self._fail(arguments, f"the first call is right, but in the second {fault}")
        if mutable_parts(first) & mutable_parts(second):
            self._fail(arguments, "two calls return the same object: make a new one each time")

    def _call(self, answer: Answer, arguments: Arguments) -> Any:
        __tracebackhide__ = True
        given = copy.deepcopy(arguments)
        try:
            got = answer(*given.values())
        except NotImplementedError:
            raise
        except (Exception, SystemExit) as error:
            self._fail(arguments, f"your function raised {told(error)}", error)
        if not same(arguments, given):
            self._fail(arguments, "your function changes its input: work on a copy")
        if mutable_parts(got) & mutable_parts(given):
            self._fail(arguments, "the result is the input object itself: make a new one")
        return got

    def _fail(
        self, arguments: Arguments, fault: str, cause: BaseException | None = None
    ) -> NoReturn:
        shown = ", ".join(f"{name}={shorten(value)}" for name, value in arguments.items())
        raise CheckFailed(f"Exercise {self.key}, for {shown}: {fault}.") from cause

    def _record(self, passed: bool) -> None:
        store = open_store()
        entry = store.get(SECTION, self.key) or {"passed": False, "tries": 0, "hints": 0}
        if not entry["passed"]:
            entry |= {"passed": passed, "tries": entry["tries"] + 1}
            store.put(SECTION, self.key, entry)

    def _next_hint(self) -> str:
        used = (open_store().get(SECTION, self.key) or {}).get("hints", 0)
        if used >= HINT_LEVELS:
            return f"You have seen every hint; the notebook in solutions/ solves {self.key}."
        return f'Next hint: hint("{self.key}", level={used + 1})'


def told(error: BaseException) -> str:
    """The error and the line of the learner's code that it came from."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first frame is our own call
    line = frames[-1].line if frames else None
    return f"{text}, in the line `{line}`" if line else text
