"""A blank answer is told in one sentence, from wherever it was called; other errors in full."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from llmserve_lab.course.blank_answer import tell_blanks


@pytest.fixture
def shell():
    shell = InteractiveShell(colors="nocolor")
    tell_blanks(shell)
    return shell


def test_a_blank_is_one_sentence_and_the_way_to_a_hint(shell, capsys):
    shell.run_cell('def g():\n    raise NotImplementedError("exercise 03.2: take the softmax")')
    done = shell.run_cell("sorted([1, 2], key=lambda _: g())")
    told = 'Exercise 03.2 is still blank: take the softmax.\nA hint: hint("03.2")'
    assert capsys.readouterr().out.strip() == told
    assert isinstance(done.error_in_exec, NotImplementedError)


@pytest.mark.parametrize(
    "code", ["raise NotImplementedError", "raise NotImplementedError('of yours')", "1 / 0"]
)
def test_any_other_error_is_shown_in_full(shell, capsys, code):
    shell.run_cell(code)
    shown = capsys.readouterr().out
    assert "Traceback" in shown and code in shown and "blank" not in shown


def test_without_ipython_nothing_happens(monkeypatch):
    monkeypatch.delitem(__import__("sys").modules, "IPython")
    tell_blanks()
