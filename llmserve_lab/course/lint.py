"""The limits that keep a notebook readable, on the cells of one edition."""

from __future__ import annotations

import ast
import re

from llmserve_lab.course.source import Cell

CODE_LINES = 15
ANSWER_LINES = 25  # an answer is a whole function with its docstring
PROSE_WORDS = 80

_NOT_PROSE = re.compile(
    r"```.*?```|\$\$.*?\$\$|<!--.*?-->|<[^>]+>|\]\([^)]*\)|\$[^$]+\$", re.DOTALL
)
_WORD = re.compile(r"\w[\w'\u2019.,/%-]*")


def faults(cells: list[Cell]) -> list[str]:
    """What is too long, or cannot be parsed; one sentence each."""
    found = [text for cell in cells for text in _cell_faults(cell)]
    code = [cell for cell in cells if cell.kind == "code"]
    if not code:
        return [*found, "there is no code cell"]
    if not re.search(r"^(import|from) \w", code[0].text, re.MULTILINE):
        found.append(f"the first {code[0].label} should hold the imports")
    return found


def count_words(text: str) -> int:
    """Words of prose; formulas, code blocks, tags and link targets are not counted."""
    return len(_WORD.findall(_NOT_PROSE.sub(" ", text)))


def _cell_faults(cell: Cell) -> list[str]:
    if cell.kind == "markdown":
        words = count_words(cell.text)
        return [f"{cell.label} has {words} words (at most {PROSE_WORDS})"][: words > PROSE_WORDS]
    lines = len(cell.text.splitlines())
    limit = ANSWER_LINES if {"solution", "stub"} & set(cell.tags) else CODE_LINES
    found = [f"{cell.label} has {lines} lines (at most {limit})"][: lines > limit]
    return found + _syntax_faults(cell)


def _syntax_faults(cell: Cell) -> list[str]:
    if any(line.lstrip().startswith(("%", "!")) for line in cell.text.splitlines()):
        return []  # IPython's own commands
    try:
        ast.parse(cell.text)
    except SyntaxError as error:
        return [f"{cell.label} is not valid Python: {error.msg}, line {error.lineno}"]
    return []
