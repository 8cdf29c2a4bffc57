"""Three hints for each exercise: where to look, what to compute, nearly the code."""

from __future__ import annotations

from llmserve_lab.course.checks import graders
from llmserve_lab.course.checks.grader import HINT_LEVELS, SECTION
from llmserve_lab.course.note import Note
from llmserve_lab.course.progress import open_store


def hint(key: str, level: int = 1) -> Note:
    """The hint of an exercise ("01.2"), from 1 (a nudge) to 3 (nearly the code).

    Raises:
        ValueError: no such exercise or level.
    """
    known = graders()
    if key not in known:
        raise ValueError(f"There is no exercise {key!r}; there are {', '.join(known)}.")
    if type(level) is not int or not 1 <= level <= HINT_LEVELS:
        raise ValueError(f"Hints have a level from 1 to {HINT_LEVELS}, not {level!r}.")
    store = open_store()
    entry = store.get(SECTION, key) or {"passed": False, "tries": 0, "hints": 0}
    if level > entry["hints"] and not entry["passed"]:
        store.put(SECTION, key, entry | {"hints": level})
    return Note(f"Hint {level} of {HINT_LEVELS} for {key}: {known[key].hints[level - 1]}")
