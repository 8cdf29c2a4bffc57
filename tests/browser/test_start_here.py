"""Chapter 00 in JupyterLab: it runs, it draws, and a learner can use it by keyboard alone."""

from __future__ import annotations

import json

import nbformat
import pytest

from tests.browser.notebook_page import NotebookPage

CHAPTER = "notebooks/00_start_here.ipynb"
KIT = [
    "from llmserve_lab.course import because, footer, header, predict, quiz, reveal\n"
    "from llmserve_lab.plots import show, tradeoff_panels, whatif_triangle",
    "header('01')",
    "predict('kit.number', 'How many?', low=1, high=64, unit='times', log=True)",
    "predict('kit.choice', 'Which way?', choices=['up', 'down'])",
    "reveal('kit.number', 24)\nreveal('kit.choice', 'down')",
    "because('kit.why', 'Why?', explain='So.')",
    "quiz('00.engine')",
    "rows = [{'batch_size': b, 'latency': b, 'throughput': b, 'kv_mib': b} for b in (1, 4, 16)]\n"
    "show(tradeoff_panels(rows, {'throughput': (16, 8)}))",
    "def calculate(gpu, size):\n"
    "    return {'latency_ms': 1, 'throughput': size, 'memory_gib': size, 'capacity_gib': 16}\n"
    "show(whatif_triangle(calculate, ['one', 'two']))",
    "footer('01')",
]
FOCUS_STAYED = "(e) => e.closest('.lsl-card').contains(document.activeElement)"
PREDICT_CELLS, REVEAL_CELL = (2, 3), 4


@pytest.fixture
def kit(lab, page) -> NotebookPage:
    """A notebook with every part of the course kit, and no model."""
    cells = [nbformat.v4.new_code_cell(source) for source in KIT]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, lab.root / "notebooks" / "kit.ipynb")
    return NotebookPage(page, lab, "notebooks/kit.ipynb")


def answer_quizzes(notebook: NotebookPage) -> None:
    """Solve every quiz card by number keys and Enter, trying the choices in turn."""
    page = notebook.page
    for card in page.locator(".lsl-quiz").all():
        card.locator("input[type=radio]").first.focus()
        solve(page, card)
        while card.get_by_text("Next question").count():
            page.keyboard.press("Enter")  # the button has the focus
            solve(page, card)


def solve(page, card) -> None:
    for number in range(1, card.locator("input[type=radio]").count() + 1):
        page.keyboard.press(str(number))
        page.keyboard.press("Enter")
        if card.locator(".is-right").count():
            return
    raise AssertionError(f"no choice was right: {card.inner_text()}")


def press_command_keys(notebook: NotebookPage) -> None:
    """What inserts, deletes and leaves cells in JupyterLab, if it gets there."""
    for key in ("b", "a", "d", "d", "x", "ArrowDown", "m"):
        notebook.page.keyboard.press(key)


def step_back(notebook: NotebookPage) -> None:
    """Move the first slider by one stop with the arrow key."""
    slider = notebook.page.locator(".js-plotly-plot .slider-group").first
    stop = int(slider.get_attribute("aria-valuenow"))
    slider.focus()
    notebook.page.keyboard.press("ArrowLeft")
    notebook.page.wait_for_function(
        "(stop) => document.querySelector('.js-plotly-plot .slider-group').ariaValueNow == stop",
        arg=str(stop - 1),
    )


def kept(lab, section: str) -> dict:
    path = lab.home / "progress.json"
    return json.loads(path.read_text())["sections"].get(section, {}) if path.exists() else {}


def test_chapter_00(lab, page):
    if not (lab.root / CHAPTER).exists():
        pytest.skip(f"{CHAPTER} is not built")
    notebook = NotebookPage(page, lab, CHAPTER)
    before = notebook.num_cells
    notebook.run_all()
    notebook.wait_until_drawn()
    assert notebook.errors() == []
    assert notebook.blank_figures() == []
    assert notebook.broken_widgets() == []
    for part in (".lsl-head", ".lsl-guess", ".lsl-quiz", ".lsl-live .lsl-token"):
        assert page.locator(part).count() > 0, part
    answer_quizzes(notebook)
    page.locator(".lsl-guess :is(input, button)").first.focus()
    press_command_keys(notebook)
    step_back(notebook)
    assert notebook.num_cells == before
    notebook.narrow()
    assert notebook.blank_figures() == []


def test_guesses_made_by_keyboard_are_kept_and_compared(lab, kit):
    page = kit.page
    for index in (0, *PREDICT_CELLS):
        kit.run_cell(index)
    number, choice = page.locator(".lsl-guess").all()
    number.locator("input[type=number]").focus()
    page.keyboard.type("8")
    page.keyboard.press("Tab")
    for _ in range(4):
        page.keyboard.press("ArrowRight")  # confidence 70 -> 90
    page.keyboard.press("Enter")
    number.get_by_text("Change my guess").wait_for()
    choice.locator("input[type=radio]").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    choice.get_by_text("Change my guess").wait_for()
    kit.run_cell(REVEAL_CELL)
    number.get_by_text("Locked").wait_for()
    first, second = page.locator(".lsl-measured").all_inner_texts()
    assert "too low by a factor of 3" in first
    assert "You were 90% sure" in first
    assert "is what was measured" in second
    entry = kept(lab, "predictions")["kit.number"]
    assert (entry["guess"], entry["confidence"], entry["late"]) == (8, 90, False)


def test_every_part_works_by_keyboard_and_keeps_its_keys(lab, kit):
    page, before = kit.page, kit.num_cells
    kit.run_all()
    kit.wait_until_drawn()
    assert kit.errors() == []
    assert kit.broken_widgets() == []
    assert kit.blank_figures() == []
    for control in page.locator(".lsl-card :is(input, button, textarea)").all():
        if control.is_visible() and control.is_enabled():
            control.focus()
            press_command_keys(kit)
            assert control.evaluate(
                "(e) => e.closest('.lsl-card').contains(document.activeElement)"
            )
    assert kit.num_cells == before
    answer_quizzes(kit)
    page.locator(".lsl-why textarea").fill("one read serves all")
    page.keyboard.press("Control+Enter")
    page.locator(".lsl-why").get_by_text("Kept.").wait_for()
    page.locator(".lsl-why input[type=checkbox]").first.focus()
    page.keyboard.press("Space")
    page.wait_for_timeout(500)
    assert kept(lab, "reasons")["kit.why"]["text"] == "one read serves all"
    assert len(kept(lab, "quizzes")) == 4
    assert all(entry["solved"] for entry in kept(lab, "quizzes").values())
    assert len(kept(lab, "chapters")["01_problem_setting"]["checked"]) == 1


def test_figures_answer_to_keys_and_survive_resizing(kit):
    page = kit.page
    kit.run_all()
    kit.wait_until_drawn()
    figure = page.locator(".js-plotly-plot").last
    assert "What would a 7B model do" in figure.get_attribute("aria-label")
    figure.locator(".updatemenu-button").nth(1).focus()
    page.keyboard.press("Enter")
    figure.locator(".legendtext", has_text="two holds").wait_for()
    assert kit.blank_figures() == []
    kit.narrow()
    assert kit.blank_figures() == []
