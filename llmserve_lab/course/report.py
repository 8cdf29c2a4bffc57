"""`progress()`: what is done, what was predicted, and how well the confidence fits."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmserve_lab.course import prediction as predictions
from llmserve_lab.course.chapter import chapters, number
from llmserve_lab.course.checks import graders
from llmserve_lab.course.checks.grader import HINT_LEVELS
from llmserve_lab.course.comparison import verdict
from llmserve_lab.course.note import Note
from llmserve_lab.course.prediction import Prediction
from llmserve_lab.course.progress import Store, open_store
from llmserve_lab.widgets.page import inline, page, plain

SECTIONS = (
    "predictions", "quizzes", "reasons", "answers", "exercises", "chapters", "beliefs"
)  # fmt: skip
LEFT = 'style="text-align: left"'  # Jupyter's own tables are flush right
BANDS = ((50, 69), (70, 89), (90, 100))  # percent of confidence


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title; drawn as a table or as lines."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def html(self) -> str:
        head = "".join(f'<th scope="col" {LEFT}>{inline(name)}</th>' for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td {LEFT}>{inline(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        title = f'<p class="lsl-kicker"><span>{inline(self.title)}</span></p>'
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def text(self) -> str:
        lines = []
        for row in self.rows:
            named = zip(self.columns, row, strict=True)
            lines.append("  " + "; ".join(f"{name}: {plain(cell)}" for name, cell in named if cell))
        return "\n".join([self.title, *lines])


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What `progress()` and `misconceptions()` return: print it, or let a cell show it."""

    tables: tuple[Table, ...]
    sentences: tuple[str, ...]
    name: str = "Your progress"  # for screen readers

    @property
    def text(self) -> str:
        parts = [table.text() for table in self.tables if table.rows]
        return "\n".join([*parts, *map(plain, self.sentences)])

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        tables = "".join(table.html() for table in self.tables if table.rows)
        said = "".join(f"<p>{inline(sentence)}</p>" for sentence in self.sentences)
        return page(
            f'<section class="lsl lsl-card lsl-wide" aria-label="{html.escape(self.name)}">'
            f"{tables}{said}</section>"
        )


def progress() -> Report:
    """What you did in this course so far."""
    store = open_store()
    tables = (_chapters(store), _exercises(store), _predictions(store))
    kept = f"Kept in `{store.path}`; `reset_progress()` forgets it."
    return Report(tables, (calibration(_made(store)), _counts(store), kept))


def reset_progress(section: str | None = None) -> Note:
    """Forget everything, or one section ("predictions", "exercises", ...).

    Raises:
        ValueError: no such section.
    """
    if section is not None and section not in SECTIONS:
        raise ValueError(f"There is no section {section!r}; there are {', '.join(SECTIONS)}.")
    store = open_store()
    chosen = SECTIONS if section is None else (section,)
    count = sum(len(store.items(name)) for name in chosen)
    store.reset(section)
    entries = "1 entry was" if count == 1 else f"{count} entries were"
    return Note(f"{entries} forgotten; run a notebook again from its first cell to begin anew.")


def calibration(made: dict[str, Prediction]) -> str:
    """How often guesses were right at each confidence; only the learner's own, made in time."""
    own = [item for item in made.values() if item.is_learners and not item.late]
    judged = [(item.confidence or 0, item.right) for item in own if item.right is not None]
    if not judged:
        return "None of your own predictions has been measured yet."
    found = []
    for low, high in BANDS:
        outcomes = [right for confidence, right in judged if low <= confidence <= high]
        if outcomes:
            found.append(f"{sum(outcomes)} of {len(outcomes)} when {low} to {high}% sure")
    mean = sum(confidence for confidence, _ in judged) / len(judged)
    share = 100 * sum(bool(right) for _, right in judged) / len(judged)
    return (
        f"Right: {', '.join(found)}. On average you were {mean:.0f}% sure and "
        f"{share:.0f}% of your predictions were right."
    )


def _counts(store: Store) -> str:
    solved = sum(bool(entry.get("solved")) for entry in store.items("quizzes").values())
    refuted = len(store.items("beliefs"))
    return f"Quiz questions solved: {solved}. Misconceptions refuted: {refuted}."


def _chapters(store: Store) -> Table:
    known, entries = chapters(), store.items("chapters")
    rows = []
    for name, entry in entries.items():
        items = known.get(name, {}).get("checklist", [])
        ticked = len({item["key"] for item in items} & set(entry.get("checked", ())))
        done = f"{ticked} of {len(items)} checklist questions" if items else "opened"
        rows.append((f"{number(name)} {known.get(name, {}).get('title', name)}", done))
    return Table(f"Chapters: {len(entries)} of {len(known)} opened", ("Chapter", "Done"), rows)


def _exercises(store: Store) -> Table:
    entries = store.items("exercises")
    rows = [(key, *_attempt(entry)) for key, entry in sorted(entries.items())]
    passed = sum(bool(entry.get("passed")) for entry in entries.values())
    title = f"Exercises: {passed} of {len(graders())} passed"
    return Table(title, ("Exercise", "Result", "Tries", "Hints"), rows)


def _attempt(entry: dict[str, Any]) -> tuple[str, str, str]:
    result = "passed" if entry.get("passed") else "not yet"
    tries, hints = entry.get("tries", 0), entry.get("hints", 0)
    return result, str(tries), f"{hints} of {HINT_LEVELS}"


def _predictions(store: Store) -> Table:
    rows = [_row(item) for item in _made(store).values()]
    columns = ("Question", "Guess", "Confidence", "Measured", "Error")
    return Table(f"Predictions: {len(rows)}", columns, rows)


def _row(item: Prediction) -> tuple[str, ...]:
    unit = item.question.unit
    revealed = item.measured is not None
    return (
        item.question.text,
        _shown(item.guess, unit) if item.is_learners else "none of yours",
        f"{item.confidence}%" if item.is_learners else "",
        _shown(item.measured, unit) if revealed else "not yet",
        verdict(item, unit) if revealed and item.is_learners else "",
    )


def _made(store: Store) -> dict[str, Prediction]:
    loaded = {key: predictions.load(key) for key in store.items("predictions")}
    return {key: item for key, item in loaded.items() if item is not None}


def _shown(value: Any, unit: str) -> str:
    return f"{value:.4g} {unit}".strip() if isinstance(value, float) else str(value)
