"""`revisit()`: which chapters to look at again, and why, as the progress file tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmserve_lab.course import prediction as predictions
from llmserve_lab.course.chapter import SECTION as CHAPTERS
from llmserve_lab.course.chapter import chapters, find, number
from llmserve_lab.course.comparison import verdict
from llmserve_lab.course.explain import SECTION as ANSWERS
from llmserve_lab.course.explain import all_asked
from llmserve_lab.course.misconceptions import SECTION as BELIEFS
from llmserve_lab.course.misconceptions import catalogue
from llmserve_lab.course.progress import Store, open_store
from llmserve_lab.course.quiz import SECTION as QUIZZES
from llmserve_lab.course.quiz import questions
from llmserve_lab.widgets.page import inline, page, plain

Reason = tuple[str, str]  # chapter's key, why to go back there


@dataclass(frozen=True, slots=True, repr=False)
class Revisit:
    """What `revisit()` returns. reasons: by chapter, those with the most first. unopened: chapters
    that were never opened, in order."""

    reasons: dict[str, tuple[str, ...]]
    unopened: tuple[str, ...]

    @property
    def text(self) -> str:
        lines = []
        for name, found in self.reasons.items():
            lines += [_title(name), *(f"  - {plain(reason)}" for reason in found)]
        return "\n".join([*lines, *(f"{said} {name}".strip() for said, name in self._further())])

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        parts = []
        for name, found in self.reasons.items():
            listed = "".join(f"<li>{inline(reason)}</li>" for reason in found)
            parts.append(f'<p class="lsl-question">{_link(name)}</p><ul>{listed}</ul>')
        further = "".join(
            f"<p>{inline(said)} {_link(self.unopened[0]) if name else ''}</p>"
            for said, name in self._further()
        )
        return page(
            '<section class="lsl lsl-card lsl-why" aria-label="What to revisit">'
            f'<p class="lsl-kicker"><span>What to revisit</span></p>{"".join(parts)}{further}'
            "</section>"
        )

    def _further(self) -> Iterator[tuple[str, str]]:
        """Closing sentences, each with the chapter that it leads to, or nothing."""
        if not self.reasons:
            yield "There is nothing to look at again so far.", ""
        if self.unopened:
            count = len(self.unopened)
            yield f"{count} chapter{'s' * (count > 1)} not opened yet. Start with", self._first
        elif not self.reasons:
            yield "Every chapter is done: explain one of them to somebody.", ""

    @property
    def _first(self) -> str:
        return _title(self.unopened[0])


def revisit() -> Revisit:
    """Checklist questions and points not ticked, guesses far off, quizzes wrong at first try,
    misconceptions not refuted: by chapter, of the chapters that were opened."""
    store = open_store()
    written = {name for name, chapter in chapters().items() if "outcomes" in chapter}
    opened = [name for name in chapters() if name in store.items(CHAPTERS) and name in written]
    found: dict[str, list[str]] = {}
    for collect in (_unticked, _missing_points, _far_off, _wrong_at_first, _unrefuted):
        for name, why in collect(store):
            if name in opened:
                found.setdefault(name, []).append(why)
    most = sorted(found, key=lambda name: (-len(found[name]), name))
    unopened = tuple(name for name in chapters() if name in written and name not in opened)
    return Revisit({name: tuple(found[name]) for name in most}, unopened)


def _unticked(store: Store) -> Iterator[Reason]:
    """A question that two chapters ask belongs to the first, and is ticked in either."""
    entries = store.items(CHAPTERS)
    done = {key for entry in entries.values() for key in entry.get("checked", ())}
    for name, chapter in chapters().items():
        for item in chapter.get("checklist", ()):
            if item["key"] not in done:
                done.add(item["key"])
                yield name, f"Not ticked: {item['text']}"


def _missing_points(store: Store) -> Iterator[Reason]:
    """Of the questions that were answered in one's own words."""
    for key, entry in store.items(ANSWERS).items():
        item = all_asked().get(key)
        if item is None or not entry.get("text"):
            continue
        missing = [p["text"] for p in item["points"] if p["key"] not in entry.get("ticked", ())]
        for name in _chapter_of(item["chapter"]) if missing else ():
            yield name, f"Your answer to *{item['question']}* lacks: {'; '.join(missing)}."


def _far_off(store: Store) -> Iterator[Reason]:
    """The learner's own guesses, made before the result."""
    for key in store.items(predictions.SECTION):
        item = predictions.load(key)
        if item is None or not item.is_learners or item.late or item.right is not False:
            continue
        for name in _chapter_of(key):
            said = f"{verdict(item, item.question.unit)} ({item.confidence}% sure)"
            yield name, f"Predicted: {item.question.text} {said}"


def _wrong_at_first(store: Store) -> Iterator[Reason]:
    for key, entry in store.items(QUIZZES).items():
        item, tries = questions().get(key), entry.get("tries", ())
        if item is None or not tries:
            continue
        solved_at_once = entry.get("solved") and len(tries) == 1
        for name in () if solved_at_once else _chapter_of(key):
            yield name, f"Wrong at first try: {item['question']}"


def _unrefuted(store: Store) -> Iterator[Reason]:
    refuted = store.items(BELIEFS)
    for key, item in catalogue().items():
        for name in () if key in refuted else _chapter_of(key):
            yield name, f'Not refuted yet: "{item.belief}"'


def _chapter_of(key: str) -> list[str]:
    """The chapter whose number a key begins with, or none."""
    try:
        return [find(key.partition(".")[0])[0]]
    except ValueError:
        return []


def _title(name: str) -> str:
    return f"{number(name)} {chapters()[name]['title']}"


def _link(name: str) -> str:
    """The chapter's title, as a link where its notebook lies beside this one."""
    title = inline(_title(name))
    file = f"{name}.ipynb"
    return f'<a href="{file}">{title}</a>' if (Path.cwd() / file).is_file() else title
