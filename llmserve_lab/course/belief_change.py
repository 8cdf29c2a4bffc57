"""A belief before a chapter's runs, and what the learner answered after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llmserve_lab.course.misconceptions import SECTION as BELIEFS
from llmserve_lab.course.prediction import load
from llmserve_lab.course.progress import open_store
from llmserve_lab.course.quiz import SECTION as QUIZZES

AGREE, PARTLY, DISAGREE = STANCES = ("agree", "partly", "disagree")
UNDECIDED = 50  # percent


@dataclass(frozen=True, slots=True)
class BeliefChange:
    """One belief. stance, confidence (percent): before, None where nobody answered. tries: answers
    to the question asked after it, and `solved`: whether the last of them was right. refuted: the
    run that refutes it was made. late: the stance came after the result."""

    label: str
    stance: str | None = None
    confidence: int | None = None
    late: bool = False
    refuted: bool = False
    tries: int = 0
    solved: bool = False

    @property
    def held(self) -> float | None:
        """How far the belief was held: 100 is surely right, 0 surely wrong, 50 undecided."""
        if self.stance is None or self.confidence is None:
            return None
        if self.stance == PARTLY:
            return UNDECIDED
        return self.confidence if self.stance == AGREE else 100 - self.confidence

    @property
    def before(self) -> str:
        """The stance in words."""
        if self.stance is None:
            return "no answer before"
        late = ", after the result" if self.late else ""
        return f"{self.stance}, {self.confidence}% sure{late}"

    @property
    def after(self) -> str:
        """The later answer in words."""
        if not self.tries:
            return "not answered yet"
        if not self.solved:
            return "not right yet"
        return "right at the first try" if self.tries == 1 else f"right at try {self.tries}"


def belief_changes(asked: Mapping[str, tuple[str, str]]) -> list[BeliefChange]:
    """What the progress file holds of these beliefs.

    asked: key of a belief, and of the prediction about it -> (a short label, the key of the quiz
    question asked after it). Of the predictions only the learner's own count.
    """
    store = open_store()
    answers, refuted = store.items(QUIZZES), store.items(BELIEFS)
    changes = []
    for key, (label, question) in asked.items():
        said = load(key)
        own = said if said is not None and said.guess in STANCES and said.is_learners else None
        entry = answers.get(question, {})
        changes.append(
            BeliefChange(
                label,
                stance=None if own is None else str(own.guess),
                confidence=None if own is None else own.confidence,
                late=own is not None and own.late,
                refuted=bool(refuted.get(key, {}).get("refuted")),
                tries=len(entry.get("tries", ())),
                solved=bool(entry.get("solved")),
            )
        )
    return changes
