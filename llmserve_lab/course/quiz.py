"""Quizzes: each choice brings its own explanation, and every try is kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from llmserve_lab.course.course_data import read_folder, without_duplicates
from llmserve_lab.course.progress import open_store
from llmserve_lab.widgets.page import cards, emit, inline, plain

SECTION = "quizzes"
Item = dict[str, Any]  # question: str, choices: [{text, why, right?}]


def quiz(key: str, answer: int | None = None) -> None:
    """Ask one question of the course's quiz file.

    Args:
        key: such as "00.engine".
        answer: the number of a choice, from 1, where there are no buttons.

    Raises:
        ValueError: no such quiz or choice.
    """
    item = question(key)
    if answer is not None:
        _answer(key, item, answer)
    ask_all("Quiz", [key])


def question(key: str) -> Item:
    """The question with this key.

    Raises:
        ValueError: there is none.
    """
    known = questions()
    if key not in known:
        raise ValueError(f"There is no quiz {key!r}; there are {', '.join(known)}.")
    return known[key]


@lru_cache(maxsize=1)
def questions() -> dict[str, Item]:
    """Every question, by key."""
    by_chapter = read_folder("quizzes").values()
    return without_duplicates([pair for asked in by_chapter for pair in asked.items()])


def ask_all(kicker: str, keys: Sequence[str]) -> None:
    """One card that asks these questions in turn."""
    items = {key: question(key) for key in keys}
    body = f'<div class="lsl lsl-card lsl-quiz"><p class="lsl-kicker">{inline(kicker)}</p>'
    body += "".join(_folded(item) for item in items.values()) + "</div>"
    text = "\n".join(_plain(kicker, key, item) for key, item in items.items())
    emit(body, text, _card(kicker, items))


def _card(kicker: str, items: dict[str, Item]) -> Any:
    module = cards()
    if module is None:
        return None
    listed = [{"key": key, **_as_html(item)} for key, item in items.items()]
    kept = open_store().items(SECTION)
    state = {key: kept[key] for key in items if key in kept}
    card = module.QuizCard(spec={"kicker": kicker, "questions": listed}, state=state)
    card.observe(lambda change: _keep(change["new"]), "state")
    return card


def _keep(state: dict[str, Any]) -> None:
    store = open_store()
    for key, entry in state.items():
        if key in questions() and store.get(SECTION, key) != entry:
            store.put(
                SECTION, key, {"tries": list(entry["tries"]), "solved": bool(entry["solved"])}
            )


def _answer(key: str, item: Item, answer: int) -> None:
    count = len(item["choices"])
    if type(answer) is not int or not 1 <= answer <= count:
        raise ValueError(f"The answer to {key!r} is a number from 1 to {count}, not {answer!r}.")
    entry = open_store().get(SECTION, key) or {"tries": [], "solved": False}
    choice = item["choices"][answer - 1]
    right = bool(choice.get("right"))
    if not entry["solved"]:
        _keep({key: {"tries": [*entry["tries"], answer - 1], "solved": right}})
    print(f"{'Right.' if right else 'Not this one.'} {plain(choice['why'])}")


def _as_html(item: Item) -> Item:
    choices = [
        {"text": inline(c["text"]), "why": inline(c["why"]), "right": bool(c.get("right"))}
        for c in item["choices"]
    ]
    return {"question": inline(item["question"]), "choices": choices}


def _folded(item: Item) -> str:
    choices = "".join(
        f"<details><summary>{inline(choice['text'])}</summary>"
        f"<p>{'<b>Right.</b> ' if choice.get('right') else '<b>Not this one.</b> '}"
        f"{inline(choice['why'])}</p></details>"
        for choice in item["choices"]
    )
    return f'<p class="lsl-question">{inline(item["question"])}</p>{choices}'


def _plain(kicker: str, key: str, item: Item) -> str:
    choices = "\n".join(f"  {i}. {plain(c['text'])}" for i, c in enumerate(item["choices"], 1))
    how = f"quiz({key!r}, answer=1)"
    return f"{kicker}: {plain(item['question'])}\n{choices}\nNo buttons here? Answer with {how}."
