"""What the course draws besides figures: cards, and the live picture of a running engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_lab.widgets.cards import BecauseBox, ChecklistCard, PredictCard, QuizCard
    from llmserve_lab.widgets.stream import live

__all__ = ["BecauseBox", "ChecklistCard", "PredictCard", "QuizCard", "live"]

_HOMES = {
    "BecauseBox": "cards",
    "ChecklistCard": "cards",
    "PredictCard": "cards",
    "QuizCard": "cards",
    "live": "stream",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
