"""Chapter 12's parts in a browser: the sheet prints on one page, the card works by keyboard."""

from __future__ import annotations

import json
import re

import nbformat
import pytest

from llmserve_lab.course.summary_sheet import MAX_CHARACTERS, MAX_ROWS, MAX_TITLE, summary_sheet
from tests.browser.notebook_page import NotebookPage

A4_POINTS = (595, 842)
FULLEST = {f"{i:02}" + "n" * (MAX_CHARACTERS - 2): (1234567, "unit") for i in range(MAX_ROWS)}


@pytest.mark.parametrize(
    ("measured", "on"),
    [({"TTFT": (1.0, "ms")}, "x"), (FULLEST, "m" * MAX_TITLE)],
    ids=["one", "fullest"],
)
def test_the_sheet_prints_on_one_a4_page(page, measured, on):
    page.set_content(summary_sheet(measured, on).html)
    pdf = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    box = re.search(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert tuple(round(float(side)) for side in box.groups()) == A4_POINTS


@pytest.mark.parametrize("width", [640, 1140])  # of a cell on a narrow page and on a wide one
def test_a_cell_shows_the_whole_sheet(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.set_content(summary_sheet(FULLEST, "x")._repr_html_())
    frame = page.locator("iframe")
    page.wait_for_function("() => document.querySelector('iframe').style.height !== '640px'")
    cut = frame.evaluate("(e) => e.contentDocument.documentElement.scrollHeight - e.clientHeight")
    assert cut <= 0


def test_an_answer_is_written_compared_and_ticked_by_keyboard(lab, page):
    cell = "from llmserve_lab.course import explain\nexplain('doc1.kv-cache')"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell)], metadata={"kernelspec": kernel}
    )
    nbformat.write(notebook, lab.root / "notebooks" / "explain.ipynb")
    opened = NotebookPage(page, lab, "notebooks/explain.ipynb")
    opened.run_cell(0)
    opened.wait_until_drawn()  # JupyterLab moves the focus until then
    card = page.locator(".lsl-why")
    card.wait_for()
    folded = [card.get_by_text(text) for text in ("One way to say it", "Tick what your own")]
    assert not any(part.is_visible() for part in folded)  # they would give the answer away
    card.locator("textarea").focus()
    page.keyboard.type("keys and values, kept")
    page.keyboard.press("Control+Enter")
    card.get_by_text("Kept.").wait_for()
    assert all(part.is_visible() for part in folded)
    card.locator("input[type=checkbox]").first.focus()
    page.keyboard.press("Space")
    card.get_by_text("1 of 4 points").wait_for()
    page.wait_for_timeout(500)
    kept = json.loads((lab.home / "progress.json").read_text())["sections"]["answers"]
    assert kept["doc1.kv-cache"] == {"text": "keys and values, kept", "ticked": ["what"]}
    assert opened.num_cells == 1
