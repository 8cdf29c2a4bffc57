"""The first and the last cell of a chapter: what it is about, and what you now know."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from llmserve_lab.course.course_data import read_folder
from llmserve_lab.course.progress import open_store
from llmserve_lab.course.quiz import ask_all
from llmserve_lab.plots.theme import DECODE, GUESS, PREFILL, SHARED
from llmserve_lab.widgets.page import cards, emit, inline, plain

SECTION = "chapters"
NOTEBOOKS = "notebooks"  # the folder of the chapters; other languages lie in folders below it
Chapter = dict[str, Any]


def header(key: str) -> None:
    """Part, number, title, minutes, what you will be able to do; then the recall questions.

    Raises:
        ValueError: no such chapter.
    """
    name, chapter = find(key)
    _note(name, opened=True)
    emit(_header_html(name, chapter), _header_text(name, chapter))
    if chapter.get("recall"):
        ask_all("Recall: from earlier chapters", chapter["recall"])


def footer(key: str) -> None:
    """The checklist of a chapter, kept in the progress file, and where to go next.

    Raises:
        ValueError: no such chapter.
    """
    name, chapter = find(key)
    if chapter.get("checklist"):
        _show_checklist(name, chapter["checklist"])
    links = _links(name, chapter)
    if links:
        body = '<nav class="lsl"><div class="lsl-links">' + "".join(h for h, _ in links)
        emit(body + "</div></nav>", "\n".join(text for _, text in links))


def find(key: str) -> tuple[str, Chapter]:
    """A chapter by its key ("01_problem_setting") or its number ("01").

    Raises:
        ValueError: there is none.
    """
    known = chapters()
    for name, chapter in known.items():
        if key in (name, number(name)):
            return name, chapter
    raise ValueError(f"There is no chapter {key!r}; there are {', '.join(known)}.")


@lru_cache(maxsize=1)
def chapters() -> dict[str, Chapter]:
    """Every chapter, by key, in order."""
    return read_folder("chapters")


def number(name: str) -> str:
    """The two digits with which a chapter's key begins."""
    return name.partition("_")[0]


def _note(name: str, **changes: Any) -> None:
    entry = open_store().get(SECTION, name) or {"opened": False, "checked": []}
    if any(entry.get(field) != value for field, value in changes.items()):
        open_store().put(SECTION, name, entry | changes)


def _header_html(name: str, chapter: Chapter) -> str:
    outcomes = "".join(f"<li>{inline(line)}</li>" for line in chapter.get("outcomes", ()))
    after = f'<p class="lsl-after">After this you can</p><ul>{outcomes}</ul>' if outcomes else ""
    return (
        f'<header class="lsl lsl-head">{_strip(name)}'
        f'<p class="lsl-kicker"><span>{inline(chapter["part"])}</span>'
        f"<span>{chapter['minutes']} minutes</span></p>"
        f'<p class="lsl-title" role="heading" aria-level="1">'
        f'<span class="lsl-number">{number(name)}</span>{inline(chapter["title"])}</p>'
        f"{after}</header>"
    )


def _strip(name: str) -> str:
    """A row of cells, one coloured for each chapter up to this one: where you are."""
    colours = (PREFILL.colour, DECODE.colour, SHARED.colour, GUESS.colour)
    place = list(chapters()).index(name)
    cells = "".join(
        f'<i style="background:{colours[i % len(colours)]}"></i>' if i <= place else "<i></i>"
        for i in range(len(chapters()))
    )
    return f'<div class="lsl-cells" aria-hidden="true">{cells}</div>'


def _header_text(name: str, chapter: Chapter) -> str:
    lines = [f"{number(name)} {chapter['title']} ({chapter['part']}, {chapter['minutes']} minutes)"]
    if chapter.get("outcomes"):
        lines.append("After this you can:")
        lines += [f"  - {plain(line)}" for line in chapter["outcomes"]]
    return "\n".join(lines)


def _show_checklist(name: str, items: list[dict[str, str]]) -> None:
    checked = (open_store().get(SECTION, name) or {}).get("checked", [])
    lead = "Tick what you can explain to someone else, without looking."
    boxes = "".join(
        f"<li>{'[x]' if item['key'] in checked else '[ ]'} {inline(item['text'])}</li>"
        for item in items
    )
    body = (
        '<div class="lsl lsl-card lsl-why"><p class="lsl-kicker">Before you go on</p>'
        f'<p class="lsl-muted">{lead}</p><ul>{boxes}</ul></div>'
    )
    text = "\n".join(["Before you go on:", *(f"  [ ] {plain(item['text'])}" for item in items)])
    emit(body, text, _checklist_card(name, items, checked, lead))


def _checklist_card(name: str, items: list[dict[str, str]], checked: list[str], lead: str) -> Any:
    module = cards()
    if module is None:
        return None
    listed = [{"key": item["key"], "text": inline(item["text"])} for item in items]
    known = [item["key"] for item in items]
    card = module.ChecklistCard(
        spec={"kicker": "Before you go on", "lead": lead, "items": listed},
        checked=[key for key in checked if key in known],
    )
    card.observe(lambda change: _note(name, checked=list(change["new"])), "checked")
    return card


def _links(name: str, chapter: Chapter) -> list[tuple[str, str]]:
    """The exercise and the next chapter, as HTML and as text; links only to files that exist."""
    links = []
    if chapter.get("exercise"):
        links.append(_link(f"{_exercises()}/{name}.ipynb", "Exercise", chapter["exercise"]))
    names = list(chapters())
    following = names.index(name) + 1
    if following < len(names):
        title = f"{number(names[following])} {chapters()[names[following]]['title']}"
        links.append(_link(f"{names[following]}.ipynb", "Next chapter", title))
    return [link for link in links if link]


def _exercises() -> str:
    """The way from this notebook's folder to the exercises of the same language edition."""
    here = Path.cwd()
    is_edition = here.parent.name == NOTEBOOKS  # notebooks/ko, not notebooks
    return f"../../exercises/{here.name}" if is_edition else "../exercises"


def _link(path: str, what: str, title: str) -> tuple[str, str] | None:
    if not (Path.cwd() / path).is_file():
        return None
    return (
        f'<a class="lsl-link" href="{path}"><span class="lsl-muted">{what}</span>'
        f"<b>{inline(title)}</b></a>",
        f"{what}: {plain(title)} ({path})",
    )
