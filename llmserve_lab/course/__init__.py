"""The course kit: what a notebook imports. Each name loads its module at first use.

A few functions share their name with the module they live in (`predict`, `progress`, ...). Here
the name always means the function, whichever module was imported first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.course import checks as check
from llmserve_lab.lazy import export

if TYPE_CHECKING:
    from llmserve_lab.course.because import because
    from llmserve_lab.course.chapter import footer, header
    from llmserve_lab.course.explain import explain
    from llmserve_lab.course.hints import hint
    from llmserve_lab.course.misconceptions import misconception, misconceptions
    from llmserve_lab.course.predict import guess_for, predict, reveal
    from llmserve_lab.course.quiz import quiz
    from llmserve_lab.course.report import progress, reset_progress
    from llmserve_lab.course.revisit import revisit

__all__ = [
    "because",
    "check",
    "explain",
    "footer",
    "guess_for",
    "header",
    "hint",
    "misconception",
    "misconceptions",
    "predict",
    "progress",
    "quiz",
    "reset_progress",
    "reveal",
    "revisit",
]

export(
    __name__,
    {
        "because": f"{__name__}.because",
        "explain": f"{__name__}.explain",
        "footer": f"{__name__}.chapter",
        "guess_for": f"{__name__}.predict",
        "header": f"{__name__}.chapter",
        "hint": f"{__name__}.hints",
        "misconception": f"{__name__}.misconceptions",
        "misconceptions": f"{__name__}.misconceptions",
        "predict": f"{__name__}.predict",
        "progress": f"{__name__}.report",
        "quiz": f"{__name__}.quiz",
        "reset_progress": f"{__name__}.report",
        "reveal": f"{__name__}.predict",
        "revisit": f"{__name__}.revisit",
    },
)
