"""The course kit: what a notebook imports. Each name loads its module at first use.

A few functions share their name with the module they live in (`predict`, `progress`, ...). Here
the name always means the function, whichever module was imported first.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_lab.course import checks as check
    from llmserve_lab.course.because import because
    from llmserve_lab.course.chapter import footer, header
    from llmserve_lab.course.hints import hint
    from llmserve_lab.course.misconceptions import misconception
    from llmserve_lab.course.predict import predict, reveal
    from llmserve_lab.course.quiz import quiz
    from llmserve_lab.course.report import progress, reset_progress

__all__ = [
    "because",
    "check",
    "footer",
    "header",
    "hint",
    "misconception",
    "predict",
    "progress",
    "quiz",
    "reset_progress",
    "reveal",
]

_HOMES = {
    "because": "because",
    "footer": "chapter",
    "header": "chapter",
    "hint": "hints",
    "misconception": "misconceptions",
    "predict": "predict",
    "progress": "report",
    "quiz": "quiz",
    "reset_progress": "report",
    "reveal": "predict",
}


class _CoursePackage(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            return  # the import system binding a submodule over the function of the same name
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _CoursePackage


def __getattr__(name: str) -> Any:
    if name == "check":
        return import_module(f"{__name__}.checks")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
