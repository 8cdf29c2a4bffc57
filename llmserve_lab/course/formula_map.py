"""The map of a chapter: code beside formula, where the engine does it, and what a run showed."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmserve_lab.widgets.page import inline, page, plain

COLUMNS = ("code", "formula", "in our engine", "seen in this run")
STYLE = (
    ".lsl-map table { table-layout: fixed; width: 100%; } "
    ".lsl-map :is(th, td) { text-align: left !important; vertical-align: top; "
    "white-space: normal; overflow-wrap: anywhere; padding: 4px 10px 4px 0; } "
    + " ".join(
        f".lsl-map th:nth-child({place}) {{ width: {width}%; }}"
        for place, width in enumerate((26, 20, 30, 24), 1)
    )
)
PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    code: str
    formula: str
    where: str  # file and name
    seen: str

    @property
    def cells(self) -> tuple[str, ...]:
        return (f"`{self.code}`", self.formula, f"`{self.where}`", self.seen)


@dataclass(slots=True, repr=False)
class FormulaMap:
    """Collects rows during a run, each after what it says has been asserted."""

    rows: list[Row] = field(default_factory=list)

    def add(self, code: str, formula: str, engine: Callable[..., Any] | type, seen: str) -> None:
        """Add a row. engine: the class or function of this package that does it; its file and name
        are read from it. A row with the same code is replaced, so that a cell may run again.

        Raises:
            ValueError: `engine` is not of this package.
        """
        row = Row(code, formula, _place(engine), seen)
        self.rows = [kept for kept in self.rows if kept.code != code] + [row]

    def __repr__(self) -> str:
        lines = [" | ".join(plain(cell) for cell in row.cells) for row in self.rows]
        return "\n".join([" | ".join(COLUMNS), *lines])

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in COLUMNS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{_breakable(cell)}</td>" for cell in row.cells) + "</tr>"
            for row in self.rows
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return page(f'<style>{STYLE}</style><div class="lsl lsl-wide lsl-map">{table}</div>')


def _breakable(cell: str) -> str:
    """HTML in which a long name may break behind a dot or a slash, before it does within a word."""
    return re.sub(r"(?<=[A-Za-z])[./](?=[A-Za-z])", r"\g<0><wbr>", inline(cell))


def _place(engine: Any) -> str:
    """Such as "engine/core.py: Engine.step"."""
    file = Path(inspect.getsourcefile(engine) or "").resolve()
    if PACKAGE.resolve() not in file.parents:
        raise ValueError(f"{engine!r} is not of this package: name a class or function of it.")
    return f"{file.relative_to(PACKAGE.resolve()).as_posix()}: {engine.__qualname__}"
