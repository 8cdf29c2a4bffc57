"""Read a course source (py:percent) into cells, and hold it to the format's rules.

    # %% [markdown] key="01-why" lang="en"     prose: one cell for each language, same key
    # %% key="01-sweep"                        code: shared by all languages
    # %% key="01-tpot" exercise="01.2" tags=["solution"]

Tags: `solution` (an answer; what stands between `# BEGIN SOLUTION: what to do` and
`# END SOLUTION` is blanked in exercises/), `stub` (shown instead of a solution without such
marks), `check` (fails until the answer is right), `hint` (left out of solutions/), `hide` (the
code is folded away).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmserve_lab.course.settings import SourceError

TAGS = frozenset({"solution", "stub", "check", "hint", "hide", "setup"})
ATTRIBUTES = frozenset({"key", "lang", "tags", "exercise"})
KEY = re.compile(r"[a-z0-9][a-z0-9-]*")
ID_LENGTH = 12
LABEL_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Cell:
    kind: str  # "markdown" or "code"
    text: str
    key: str | None = None
    lang: str | None = None  # of markdown; code is shared by all languages
    tags: tuple[str, ...] = ()
    exercise: str | None = None  # "01.2" on answers

    @property
    def identity(self) -> str:
        """A notebook cell id that stays the same for as long as the key (or the text) does."""
        subject = f"key:{self.key}" if self.key else f"{self.kind}:{self.text}"
        return hashlib.sha256(f"{subject}\0{self.lang or ''}".encode()).hexdigest()[:ID_LENGTH]

    @property
    def label(self) -> str:
        """The cell as an error message names it."""
        first = self.text.strip().split("\n", 1)[0]
        name = f"{self.key!r}" if self.key else f"that begins {first[:LABEL_LENGTH]!r}"
        return f"{self.kind} cell {name}" + (f" ({self.lang})" if self.lang else "")


def read_source(path: Path) -> list[Cell]:
    """The cells of one source.

    Raises:
        SourceError: naming every cell that breaks a rule.
    """
    faults: list[str] = []
    cells = [_cell(raw, faults) for raw in _raw_cells(path) if raw.source.strip()]
    if not cells:
        faults.append("there is no cell")
    faults += [fault for cell in cells for fault in _faults(cell)]
    faults += _repeated(cells)
    raise_faults(path.name, faults)
    return cells


def raise_faults(where: str, faults: Iterable[str]) -> None:
    """Raise one SourceError that lists the faults, if there are any."""
    if lines := [f"{where}: {fault}" for fault in faults]:
        raise SourceError("\n".join(lines))


def _raw_cells(path: Path) -> list[Any]:
    try:
        import jupytext
    except ModuleNotFoundError as error:
        raise SourceError('Building needs jupytext: pip install "llmserve-lab[test]".') from error
    return list(jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent").cells)


def _cell(raw: Any, faults: list[str]) -> Cell:
    attributes = {name: raw.metadata[name] for name in raw.metadata if name in ATTRIBUTES}
    attributes["tags"] = tuple(attributes.get("tags", ()))
    cell = Cell(raw.cell_type, raw.source.strip("\n"), **attributes)
    unknown = sorted(set(raw.metadata) - ATTRIBUTES - {"lines_to_next_cell"})  # jupytext's own
    faults += [f"{cell.label} has the unknown attribute {name!r}" for name in unknown]
    return cell


def _faults(cell: Cell) -> list[str]:
    found = []
    if cell.kind not in ("markdown", "code"):
        found.append("is neither markdown nor code")
    if unknown := sorted(set(cell.tags) - TAGS):
        found.append(f"has the unknown tag {unknown[0]!r}")
    if cell.key and not KEY.fullmatch(cell.key):
        found.append("needs a key of lower-case letters, digits and hyphens")
    if cell.kind == "markdown" and not cell.lang:
        found.append('needs lang="en" (or another language)')
    if cell.kind == "code" and cell.lang:
        found.append("has a lang, but code is shared by all languages")
    found += _answer_faults(cell)
    return [f"{cell.label} {text}" for text in found]


def _answer_faults(cell: Cell) -> list[str]:
    is_answer = cell.kind == "code" and {"solution", "stub"} & set(cell.tags)
    if is_answer and not (cell.key and cell.exercise):
        return ['is an answer and needs key="..." and exercise="01.2"']
    if "check" in cell.tags and not (cell.kind == "code" and cell.exercise):
        return ['is a check: it must be code and name its answer with exercise="01.2"']
    return []


def _repeated(cells: list[Cell]) -> list[str]:
    """Cells of one edition that would get the same id. A stub and its solution may."""
    seen = Counter((cell.identity, "stub" in cell.tags) for cell in cells)
    labels = {(cell.identity, "stub" in cell.tags): cell.label for cell in cells}
    return [
        f"{count} cells are the {labels[which]}: give each its own key"
        for which, count in seen.items()
        if count > 1
    ]
