"""One notebook in JupyterLab, driven and looked at as a learner would."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUN_SECONDS = 240
DRAW_SECONDS = 30
RUN_TRIES = 10

IDLE = """(count) => {
  const prompts = [...document.querySelectorAll(".jp-CodeCell .jp-InputArea-prompt")];
  const done = prompts.filter((prompt) => /\\[\\d+\\]/.test(prompt.textContent));
  const waiting = prompts.filter((prompt) => prompt.textContent.includes("*"));
  const failed = document.querySelector("[data-mime-type='application/vnd.jupyter.error']");
  const kernel = document.querySelector(".jp-Notebook-ExecutionIndicator").dataset.status;
  return (done.length >= count || failed) && waiting.length === 0 && kernel === "idle";
}"""

# A figure is blank if it has no area, or if none of its traces has drawn a shape.
BLANK = """() => [...document.querySelectorAll(".js-plotly-plot")].filter((figure) => {
  const box = figure.getBoundingClientRect();
  const shapes = [...figure.querySelectorAll(".cartesianlayer .trace :is(path, circle, rect)")];
  const drawn = shapes.filter((shape) => {
    const { width, height } = shape.getBoundingClientRect();
    return width + height > 1;
  });
  return box.width < 200 || box.height < 150 || drawn.length === 0;
}).map((figure) => figure.getAttribute("aria-label") ?? "a figure without a label")"""

WIDGETS = """() => [...document.querySelectorAll(
  "[data-mime-type='application/vnd.jupyter.widget-view+json']")].map((output) => ({
    height: output.getBoundingClientRect().height,
    card: output.querySelector(".lsl-card, .jupyter-widgets") !== null,
    text: output.textContent.slice(0, 80),
  }))"""


class NotebookPage:
    def __init__(self, page: Any, lab: Any, path: str) -> None:
        self.page = page
        self.file = Path(lab.root) / path
        page.goto(lab.url(f"lab/tree/{path}?reset"))
        page.wait_for_function(
            "(count) => document.querySelectorAll('.jp-Notebook .jp-Cell').length === count",
            arg=len(self._cells),
        )
        page.wait_for_function(
            "() => document.querySelector('.jp-Notebook-ExecutionIndicator')"
            "?.dataset.status === 'idle'"
        )

    @property
    def _cells(self) -> list[dict[str, Any]]:
        return json.loads(self.file.read_text(encoding="utf-8"))["cells"]

    @property
    def num_prompts(self) -> int:
        """Code cells that show a number once they have run, as the file says."""
        code = [c for c in self._cells if c["cell_type"] == "code" and "".join(c["source"]).strip()]
        return sum(not c["metadata"].get("jupyter", {}).get("source_hidden") for c in code)

    @property
    def num_cells(self) -> int:
        return self.page.locator(".jp-Notebook .jp-Cell").count()

    def run_all(self) -> None:
        self.page.locator(".jp-Notebook .jp-Cell").first.click()
        self._until_begun(self.page.locator(".jp-Notebook"), self._choose_run_all)
        self.page.wait_for_function(IDLE, arg=self.num_prompts, timeout=RUN_SECONDS * 1000)

    def _choose_run_all(self) -> None:
        self.page.locator(".lm-MenuBar-item", has_text="Run").first.click()
        self.page.locator(".lm-Menu-item", has_text="Run All Cells").first.click()

    def run_cell(self, index: int) -> None:
        """Run one code cell, counted from 0, for the first time."""
        cell = self.page.locator(".jp-CodeCell").nth(index)

        def press() -> None:
            cell.locator(".cm-content").click()
            self.page.keyboard.press("Control+Enter")

        self._until_begun(cell, press)
        self.page.wait_for_function(IDLE, arg=1, timeout=RUN_SECONDS * 1000)

    def _until_begun(self, where: Any, act: Callable[[], None]) -> None:
        """Repeat what makes cells run: a page that has just opened may miss it."""
        begun = where.locator(".jp-InputArea-prompt", has_text=re.compile(r"\[[\d*]+\]"))
        for _ in range(RUN_TRIES):
            act()
            self.page.wait_for_timeout(1500)
            if begun.count():
                return

    def errors(self) -> list[str]:
        mime = "[data-mime-type='application/vnd.jupyter.error']"
        return self.page.locator(f".jp-OutputArea {mime}").all_inner_texts()

    def wait_until_drawn(self) -> None:
        """Figures and widgets load their scripts after the kernel has long been idle."""
        self.page.wait_for_function(
            "() => !document.querySelector('.jp-RenderedPlotly:not(.js-plotly-plot)')"
            " && !document.body.textContent.includes('Loading widget...')",
            timeout=DRAW_SECONDS * 1000,
        )
        self.page.wait_for_timeout(1500)

    def blank_figures(self) -> list[str]:
        return self.page.evaluate(BLANK)

    def broken_widgets(self) -> list[dict[str, Any]]:
        widgets = self.page.evaluate(WIDGETS)
        return [w for w in widgets if w["height"] < 20 or "Error displaying widget" in w["text"]]

    def narrow(self) -> None:
        """Resize the window twice: narrower, then taller only."""
        for height in (900, 1200):
            self.page.set_viewport_size({"width": 800, "height": height})
            self.page.wait_for_timeout(1500)
