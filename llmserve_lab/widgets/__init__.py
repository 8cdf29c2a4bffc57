"""What the course draws besides figures: cards, and the live picture of a running engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.lazy import export

if TYPE_CHECKING:
    from llmserve_lab.widgets.cards import (
        BecauseBox,
        ChecklistCard,
        ExplainCard,
        PredictCard,
        QuizCard,
    )
    from llmserve_lab.widgets.stream import live

__all__ = ["BecauseBox", "ChecklistCard", "ExplainCard", "PredictCard", "QuizCard", "live"]

export(
    __name__,
    {
        "BecauseBox": f"{__name__}.cards",
        "ChecklistCard": f"{__name__}.cards",
        "ExplainCard": f"{__name__}.cards",
        "PredictCard": f"{__name__}.cards",
        "QuizCard": f"{__name__}.cards",
        "live": f"{__name__}.stream",
    },
)
