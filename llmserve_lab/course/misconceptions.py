"""Wrong beliefs about serving: named, called wrong, explained, and refuted by a run."""

from __future__ import annotations

import html
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from llmserve_lab.course import beliefs
from llmserve_lab.course.note import Note
from llmserve_lab.course.progress import open_store
from llmserve_lab.widgets.page import page

if TYPE_CHECKING:
    from llmserve_lab.course.report import Report

SECTION = "beliefs"


@dataclass(frozen=True, slots=True, repr=False)
class Misconception:
    """`experiment` runs, asserts what refutes the belief, and tells the evidence in one sentence
    with the numbers of its run. What it asserts are counts, never times."""

    key: str  # "01.throughput-is-latency"
    belief: str  # as people say it
    wrong: str  # "This is wrong: ..."
    mechanism: str
    experiment: Callable[[], str]

    def refute(self) -> Note:
        """Run the experiment; its evidence.

        Raises:
            AssertionError: the run did not refute the belief.
        """
        evidence = self.experiment()
        open_store().put(SECTION, self.key, {"refuted": True, "evidence": evidence})
        return Note(evidence)

    def __repr__(self) -> str:
        call = f'misconception("{self.key}").refute()'
        return f'"{self.belief}"\n{self.wrong}\n{self.mechanism}\nSee it happen: {call}'

    def _repr_html_(self) -> str:
        call = f'misconception("{self.key}").refute()'
        return page(
            '<section class="lsl lsl-card lsl-why" aria-label="Misconception">'
            '<p class="lsl-kicker"><span>What people say</span></p>'
            f'<p class="lsl-question">{html.escape(self.belief)}</p>'
            f"<p><strong>{html.escape(self.wrong)}</strong> {html.escape(self.mechanism)}</p>"
            f'<p class="lsl-muted">See it happen: <code>{html.escape(call)}</code></p></section>'
        )


def misconception(key: str) -> Misconception:
    """The misconception of this key.

    Raises:
        ValueError: there is none.
    """
    known = catalogue()
    if key not in known:
        raise ValueError(f"There is no misconception {key!r}; there are {', '.join(known)}.")
    return known[key]


def misconceptions() -> Report:
    """All misconceptions of the course as a table, with those that a run of yours has refuted."""
    from llmserve_lab.course.report import Report, Table

    known, entries = catalogue(), open_store().items(SECTION)
    refuted = {key for key in known if entries.get(key, {}).get("refuted")}
    rows = [
        (key.partition(".")[0], item.belief, "refuted" if key in refuted else "not yet")
        for key, item in known.items()
    ]
    title = f"Misconceptions: {len(refuted)} of {len(known)} refuted by a run of yours"
    table = Table(title, ("Chapter", "What people say", "By your run"), rows)
    waiting = next((key for key in known if key not in refuted), None)
    call = f'Refute the next one: `misconception("{waiting}").refute()`.'
    return Report((table,), (call,) if waiting else (), "Misconceptions of the course")


def catalogue() -> dict[str, Misconception]:
    """All of them by key, in the order of the chapters."""
    names = sorted(module.name for module in pkgutil.iter_modules(beliefs.__path__))
    modules = [import_module(f"{beliefs.__name__}.{name}") for name in names]
    return {item.key: item for module in modules for item in module.MISCONCEPTIONS}
