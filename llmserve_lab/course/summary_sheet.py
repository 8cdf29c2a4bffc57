"""One A4 page with the formulas of part 1 and the learner's own numbers, to print or to keep."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from llmserve_lab.course.course_data import read_folder
from llmserve_lab.course.explain import all_asked
from llmserve_lab.course.prediction import finite
from llmserve_lab.course.progress import home_directory
from llmserve_lab.widgets.page import inline

FILE_NAME = "llmserve-lab-summary.html"
MAX_ROWS, MAX_CHARACTERS = 12, 48  # of what was measured: more would not fit on the page
MAX_TITLE = 80
FRAME_PIXELS = 640  # until the page is there, and has said how long it is
FIT = (  # as long as its page, also when the window becomes narrower or wider
    "const page = this.contentDocument.documentElement, "
    "fit = () => { this.style.height = `${Math.ceil(page.offsetHeight) + 2}px`; }; "
    "fit(); this.contentWindow.addEventListener('resize', fit)"
)

Measured = tuple[float, str]  # a value and its unit


@dataclass(frozen=True, slots=True, repr=False)
class SummarySheet:
    """A page that needs no network. measured: what to print beside the formulas."""

    measured: dict[str, Measured]
    on: str

    @property
    def html(self) -> str:
        """The whole page."""
        folder = files("llmserve_lab.course") / "data" / "sheet"
        template = (folder / "part1.html").read_text(encoding="utf-8")
        content = {"ROWS": self._rows(), "FORMULAS": _formulas(), "ANSWERS": _answers()}
        for name, text in (content | {"ON": inline(self.on)}).items():
            template = template.replace(f"<!--{name}-->", text)
        return template

    def save(self, folder: str | os.PathLike[str] | None = None) -> Path:
        """Write the page into `folder`, or into the folder of the progress file; its path.

        Raises:
            NotADirectoryError: there is no such folder.
            OSError: it cannot be written to.
        """
        target = home_directory() if folder is None else Path(folder).expanduser()
        if folder is None:
            target.mkdir(parents=True, exist_ok=True)
        if not target.is_dir():
            raise NotADirectoryError(f"There is no folder {target}: make it, or name another one.")
        path = target / FILE_NAME
        path.write_text(self.html, encoding="utf-8")
        return path

    def __repr__(self) -> str:
        rows = [f"  {name}: {_shown(*value)}" for name, value in self.measured.items()]
        return "\n".join([f"Summary sheet, measured on {self.on}", *rows])

    def _repr_html_(self) -> str:
        """In a frame of its own, so that its button prints this page alone."""
        page = html.escape(self.html, quote=True)
        size = f"width:100%;max-width:860px;height:{FRAME_PIXELS}px"
        style = f"{size};border:1px solid #8886;border-radius:10px;background:#fff"
        frame = f'title="Summary sheet" style="{style}" onload="{FIT}"'
        return f'<iframe {frame} srcdoc="{page}"></iframe>'

    def _rows(self) -> str:
        return "".join(
            f"<tr><td>{inline(name)}</td><td><b>{html.escape(_shown(*value))}</b></td></tr>"
            for name, value in self.measured.items()
        )


def summary_sheet(measured: Mapping[str, Measured], on: str) -> SummarySheet:
    """The sheet with these numbers, as in `{"TTFT": (12.5, "ms")}`.

    Args:
        measured: at most 12 names with a value and its unit, 48 characters at most each.
        on: what it was measured on, in at most 80 characters.

    Raises:
        ValueError: there is too much for one page, or a number is not finite.
        TypeError: a value is no number, or a name or unit is no text.
    """
    if not measured or len(measured) > MAX_ROWS:
        raise ValueError(f"The sheet has room for 1 to {MAX_ROWS} numbers, not {len(measured)}.")
    _require_text("on=", on, MAX_TITLE)
    rows = {}
    for name, (value, unit) in measured.items():
        _require_text("A name", name, MAX_CHARACTERS)
        _require_text("A unit", unit, MAX_CHARACTERS)
        rows[name] = (finite(value, f"value of {name!r}"), unit)
    return SummarySheet(rows, on)


def _require_text(what: str, text: str, most: int) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} is a text, not {type(text).__name__}.")
    if len(text) > most:
        raise ValueError(f"{what} has at most {most} characters on the sheet: {text[:most]!r} ...")


def _shown(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".strip()


def _formulas() -> str:
    rows = read_folder("sheet")["part1"]["formulas"]
    cells = (
        f"<tr><td>{inline(row['name'])}</td><td>{row['formula']}</td>"
        f"<td>{inline(row['unit'])}</td><td>{inline(row['grows'])}</td></tr>"
        for row in rows
    )
    return "".join(cells)


def _answers() -> str:
    """The five questions, each with its answer in short."""
    return "".join(
        f"<dt>{inline(item['question'])}</dt><dd>{inline(item['short'])}</dd>"
        for item in all_asked().values()
    )
