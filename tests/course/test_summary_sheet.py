"""The summary sheet: formulas and the numbers that it was given, in one file without a network."""

from __future__ import annotations

import re

import pytest

from llmserve_lab.course.explain import all_asked
from llmserve_lab.course.summary_sheet import MAX_ROWS, summary_sheet
from llmserve_lab.widgets.page import inline


def test_it_holds_formulas_questions_and_the_given_numbers():
    page = summary_sheet({"TTFT": (12.34, "ms"), "KV": (6144, "bytes")}, on="a < b").html
    assert "12.3 ms" in page and "6,144 bytes" in page and "a &lt; b" in page
    assert all(
        item["question"] in page and inline(item["short"]) in page for item in all_asked().values()
    )
    assert "KV heads" in page and "<!--" not in page


def test_it_loads_nothing_from_anywhere():
    page = summary_sheet({"TTFT": (1, "ms")}, on="x").html
    assert not re.search(r"https?:|src=|<link|url\(|@import", page)


def test_it_is_written_where_the_learner_says_or_beside_the_progress(tmp_path, home):
    folder = tmp_path / "mine"
    folder.mkdir()
    sheet = summary_sheet({"TTFT": (1, "ms")}, on="x")
    assert sheet.save(folder).parent == folder
    assert sheet.save().parent == home
    assert sheet.save().read_text(encoding="utf-8") == sheet.html
    with pytest.raises(NotADirectoryError, match="make it, or name another one"):
        sheet.save(tmp_path / "nowhere")


def test_a_cell_shows_it_in_a_frame_that_prints_alone():
    shown = summary_sheet({"TTFT": (1, "ms")}, on="x")._repr_html_()
    assert shown.startswith('<iframe title="Summary sheet"') and "window.print()" in shown
    assert "<main>" not in shown  # it is escaped into the frame


@pytest.mark.parametrize(
    ("measured", "on", "error"),
    [
        ({}, "x", ValueError),
        ({str(i): (1, "ms") for i in range(MAX_ROWS + 1)}, "x", ValueError),
        ({"n" * 60: (1, "ms")}, "x", ValueError),
        ({"a": (float("nan"), "ms")}, "x", ValueError),
        ({"a": ("1", "ms")}, "x", TypeError),
        ({"a": (1, None)}, "x", TypeError),
        ({"a": (1, "ms")}, "x" * 100, ValueError),
    ],
)
def test_what_does_not_fit_is_refused(measured, on, error):
    with pytest.raises(error):
        summary_sheet(measured, on)
