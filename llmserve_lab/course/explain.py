"""An answer in the learner's own words, then a model answer and points to hold it against."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from llmserve_lab.course.course_data import read_folder, without_duplicates
from llmserve_lab.course.progress import open_store
from llmserve_lab.widgets.page import cards, emit, inline, plain

SECTION = "answers"
Asked = dict[str, Any]  # question, short, answer, chapter: str, points: [{key, text}]


def explain(key: str, text: str | None = None, ticked: Sequence[int] | None = None) -> None:
    """Ask for an answer and keep it; then unfold a model answer, with points to tick.

    Args:
        key: such as "doc1.stages".
        text, ticked: the answer, and the numbers (from 1) of the points that it makes, where
            there is no box to write in and to tick.

    Raises:
        ValueError: no such question or point.
        TypeError: `text` is no text.
    """
    item = asked(key)
    points = None if ticked is None else _points(item, ticked)
    if text is not None and not isinstance(text, str):
        raise TypeError(f"text= is a text, not {type(text).__name__}.")
    if text and text.strip():
        _keep(key, text=text.strip())
    if points is not None:
        _keep(key, ticked=points)
    kept = answer_of(key)
    body, plain_text = _fallback(key, item, kept)
    emit(body, plain_text, _card(key, item, kept))


def asked(key: str) -> Asked:
    """The question of this key, with its model answer and points.

    Raises:
        ValueError: there is none.
    """
    known = all_asked()
    if key not in known:
        raise ValueError(f"There is no question {key!r}; there are {', '.join(known)}.")
    return known[key]


@lru_cache(maxsize=1)
def all_asked() -> dict[str, Asked]:
    """Every question that `explain` asks, by key."""
    by_chapter = read_folder("answers").values()
    return without_duplicates([pair for items in by_chapter for pair in items.items()])


def answer_of(key: str) -> dict[str, Any]:
    """What was kept: `text`, and the keys of the points `ticked`."""
    return {"text": "", "ticked": []} | (open_store().get(SECTION, key) or {})


def _points(item: Asked, numbers: Sequence[int]) -> list[str]:
    points = item["points"]
    for number in numbers:
        if type(number) is not int or not 1 <= number <= len(points):
            raise ValueError(
                f"ticked= holds numbers of points, from 1 to {len(points)}, not {number!r}."
            )
    return [points[number - 1]["key"] for number in sorted(set(numbers))]


def _keep(key: str, **changes: Any) -> None:
    open_store().put(SECTION, key, answer_of(key) | changes)


def _card(key: str, item: Asked, kept: dict[str, Any]) -> Any:
    module = cards()
    if module is None:
        return None
    points = [{"key": p["key"], "text": inline(p["text"])} for p in item["points"]]
    spec = {
        "question": inline(item["question"]),
        "answer": inline(item["answer"]),
        "points": points,
    }
    known = [point["key"] for point in points]
    ticked = [point for point in kept["ticked"] if point in known]
    card = module.ExplainCard(
        spec=spec, text=kept["text"], saved=kept["text"], opened=bool(kept["text"]), ticked=ticked
    )

    def on_text(change: dict[str, Any]) -> None:
        _keep(key, text=change["new"])
        card.saved = change["new"]

    card.observe(on_text, "text")
    card.observe(lambda change: _keep(key, ticked=list(change["new"])), "ticked")
    return card


def _fallback(key: str, item: Asked, kept: dict[str, Any]) -> tuple[str, str]:
    """The card without a widget: HTML, and plain text. The model answer is folded."""
    how = f"explain({key!r}, text='...', ticked=[1, 2])"
    points = "".join(
        f"<li>{'[x]' if point['key'] in kept['ticked'] else '[ ]'} {inline(point['text'])}</li>"
        for point in item["points"]
    )
    said = f"Your answer: {kept['text']}" if kept["text"] else "No answer of yours yet."
    body = (
        '<div class="lsl lsl-card lsl-why"><p class="lsl-kicker">In your own words</p>'
        f'<p class="lsl-question">{inline(item["question"])}</p><p>{inline(said)}</p>'
        f'<p class="lsl-muted">No box here? Answer with <code>{inline(how)}</code>.</p>'
        f"<details><summary>A model answer, and what to find in yours</summary>"
        f"<p>{inline(item['answer'])}</p><ol>{points}</ol></details></div>"
    )
    return body, f"In your own words: {plain(item['question'])} {plain(said)} Answer with {how}."
