"""From the cells of a source to those of one notebook: one language, answers shown or blanked."""

from __future__ import annotations

import re
from dataclasses import replace

from llmserve_lab.course.source import Cell, raise_faults

BEGIN = re.compile(r"(?P<indent>\s*)# BEGIN SOLUTION(?:: (?P<task>.+))?")
LINE_LENGTH = 100
END = re.compile(r"\s*# END SOLUTION")


def in_language(cells: list[Cell], lang: str, record: str, where: str) -> list[Cell]:
    """The code, and of each piece of prose its version in `lang`, in the order of `record`.

    Raises:
        SourceError: naming every cell without its translation.
    """
    versions = {(cell.key, cell.lang): cell for cell in cells if cell.key and cell.lang}
    prose = [cell for cell in cells if cell.kind == "markdown"]
    faults = [
        f"{cell.label} is a translation of no {record} cell"
        for cell in prose
        if cell.lang != record and (cell.key, record) not in versions
    ]
    faults += [
        f"{cell.label} has no {lang!r} translation"
        for cell in prose
        if cell.lang == record and lang != record and (cell.key, lang) not in versions
    ]
    raise_faults(where, faults)
    kept = [cell for cell in cells if cell.kind == "code" or cell.lang == record]
    return [versions[cell.key, lang] if cell.key and cell.lang else cell for cell in kept]


def chapter(cells: list[Cell], where: str) -> list[Cell]:
    """Cells of a chapter, which holds no answers."""
    raise_faults(
        where,
        (
            f"{cell.label} is tagged as part of an exercise, which belongs in course/exercises/"
            for cell in cells
            if {"solution", "stub", "check"} & set(cell.tags)
        ),
    )
    return cells


def solved(cells: list[Cell], where: str) -> list[Cell]:
    """Cells of a solution: answers shown, stubs and hints left out."""
    shown = [cell for cell in cells if not {"stub", "hint"} & set(cell.tags)]
    return [replace(cell, text=_cut(cell, blank=False, where=where)) for cell in shown]


def blank(cells: list[Cell], where: str) -> list[Cell]:
    """Cells of an exercise: every answer becomes NotImplementedError, or the stub given for it."""
    stubs = {cell.key for cell in cells if "stub" in cell.tags}
    answers = [cell for cell in cells if "solution" in cell.tags]
    whole = [cell for cell in answers if not _has_marks(cell)]
    raise_faults(
        where,
        (
            f"{cell.label} needs either a BEGIN SOLUTION mark or a stub of the same key"
            for cell in answers
            if cell.kind == "code" and (cell in whole) != (cell.key in stubs)
        ),
    )
    shown = [cell for cell in cells if cell not in whole]
    return [replace(cell, text=_cut(cell, blank=True, where=where)) for cell in shown]


def _has_marks(cell: Cell) -> bool:
    return any(BEGIN.fullmatch(line) for line in cell.text.splitlines())


def _cut(cell: Cell, blank: bool, where: str) -> str:
    """The text without its marks and, if `blank`, without what stands between them."""
    lines: list[str] = []
    inside = False
    for line in cell.text.splitlines():
        begin, end = BEGIN.fullmatch(line), END.fullmatch(line)
        if (bool(begin) and inside) or (bool(end) and not inside):
            raise_faults(where, [f"{cell.label} has a SOLUTION mark out of order"])
        if begin and blank:
            lines += _placeholder(cell, begin, where)
        if not (begin or end or (inside and blank)):
            lines.append(line)
        inside = (inside or bool(begin)) and not end
    if inside:
        raise_faults(where, [f"{cell.label} has a BEGIN SOLUTION without its END SOLUTION"])
    return "\n".join(lines)


def _placeholder(cell: Cell, begin: re.Match[str], where: str) -> list[str]:
    """The lines that stand for the answer, wrapped as the formatter would."""
    indent, task = begin["indent"], begin["task"]
    if "solution" not in cell.tags or not task:
        raise_faults(
            where,
            [f'{cell.label} needs tags=["solution"] and "# BEGIN SOLUTION: what to write here"'],
        )
    text = _quoted(f"exercise {cell.exercise}: {task}")
    line = f"{indent}raise NotImplementedError({text})"
    if len(line) <= LINE_LENGTH:
        return [line]
    return [f"{indent}raise NotImplementedError(", f"{indent}    {text}", f"{indent})"]


def _quoted(text: str) -> str:
    """As a Python string, quoted as the formatter would."""
    quoted = repr(text)
    return quoted if '"' in text else f'"{quoted[1:-1]}"'
