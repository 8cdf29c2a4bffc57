"""Graders, by name: `check.ex01_ttft(ttft)`. Each exercise has a module of its own."""

from __future__ import annotations

import difflib
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmserve_lab.course.blank_answer import tell_blanks

if TYPE_CHECKING:
    from llmserve_lab.course.checks.grader import Grader

PREFIX = "ex"  # of the modules that hold graders: ex01, ex02, ...

tell_blanks()


def graders() -> dict[str, Grader]:
    """Every grader, by the key of its exercise ("01.2"), in order."""
    names = sorted(
        module.name
        for module in pkgutil.iter_modules(__path__)
        if module.name.removeprefix(PREFIX).isdigit()
    )
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return {grader.key: grader for module in modules for grader in module.GRADERS}


def __getattr__(name: str) -> Any:
    if name.startswith(PREFIX):
        by_name = {grader.name: grader for grader in graders().values()}
        if name in by_name:
            return by_name[name]
        close = difflib.get_close_matches(name, by_name, n=1, cutoff=0.0)
        raise AttributeError(f"There is no check {name!r}; the nearest is check.{close[0]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({"graders", *(grader.name for grader in graders().values())})
