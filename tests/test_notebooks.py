"""The generated notebooks: as their sources say, and every cell of them runs."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from nbclient import NotebookClient

from llmserve_lab.course.build import FORMS, main
from llmserve_lab.course.lint import ANSWER_LINES, CODE_LINES, PROSE_WORDS, count_words
from tests.printed_width import WIDEST, too_wide

ROOT = Path(__file__).resolve().parents[1]
WIDTH_PLUGIN = "tests.printed_width"
CELL_SECONDS = 300  # a stuck cell ends here; nothing is measured
LARGEST = 200_000  # bytes; results or widget state would exceed it
NOTEBOOKS = sorted(
    path.relative_to(ROOT) for folder in FORMS for path in (ROOT / folder).rglob("[0-9]*.ipynb")
)
RUNNABLE = [path for path in NOTEBOOKS if path.parts[0] != "exercises"]
BLANK = [path for path in NOTEBOOKS if path.parts[0] == "exercises"]


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Offline, with a progress file of its own, as on a fresh machine."""
    monkeypatch.setenv("LLMSERVE_LAB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return dict(os.environ)


def run_cells(notebook, environment, report):
    """Run a notebook with nbval; how each cell ended, by pytest's name for it."""
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env"]
    options = [f"--nbval-cell-timeout={CELL_SECONDS}", f"--junitxml={report}"]
    isolated = ["-p", "no:cacheprovider", "-p", WIDTH_PLUGIN, "-o", "addopts=", notebook]
    done = subprocess.run(
        [*command, *options, *isolated], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else []
    ends = {case.get("name"): case[0].tag if len(case) else "passed" for case in cases}
    return ends, done


def code_cells(notebook):
    cells = nbformat.read(ROOT / notebook, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


def test_the_notebooks_are_what_their_sources_say(capsys):
    assert main(["--check", "--root", str(ROOT)]) == 0, capsys.readouterr().out
    assert RUNNABLE and BLANK


@pytest.mark.parametrize("notebook", RUNNABLE, ids=Path.as_posix)
def test_every_cell_runs(notebook, environment, tmp_path):
    ends, done = run_cells(notebook, environment, tmp_path / "report.xml")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert list(ends.values()) == ["passed"] * len(code_cells(notebook)), ends


def test_a_cell_that_fails_or_is_skipped_does_not_count_as_passed(environment, tmp_path):
    cells = [nbformat.v4.new_code_cell(source) for source in ("1 / 0", "1", "2")]
    cells[1].metadata.tags = ["nbval-skip"]
    file = tmp_path / "wrong.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), file)
    ends, done = run_cells(file, environment, tmp_path / "report.xml")
    assert done.returncode != 0
    assert sorted(ends.values()) == ["failure", "passed", "skipped"]


@pytest.mark.parametrize(
    ("source", "end"),
    [(f"print('a' * {WIDEST})", "passed"), (f"print('a' * {WIDEST + 1})", "failure")],
)
def test_a_line_too_wide_for_a_narrow_page_is_a_failure(source, end, environment, tmp_path):
    file = tmp_path / "wide.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)]), file)
    ends, _ = run_cells(file, environment, tmp_path / "report.xml")
    assert list(ends.values()) == [end]


def test_a_notebook_without_cells_is_a_failure(environment, tmp_path):
    file = tmp_path / "empty.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), file)
    ends, done = run_cells(file, environment, tmp_path / "report.xml")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED and not ends


@pytest.mark.parametrize("notebook", BLANK, ids=Path.as_posix)
def test_a_blank_exercise_fails_exactly_at_its_checks(notebook, environment):
    content = nbformat.read(ROOT / notebook, as_version=4)
    client = NotebookClient(
        content,
        timeout=CELL_SECONDS,
        allow_errors=True,
        kernel_name="python3",
        resources={"metadata": {"path": ROOT / notebook.parent}},
    )
    client.execute(env=environment)
    checks = {}
    failed = {}
    for cell in (cell for cell in content.cells if cell.cell_type == "code"):
        assert cell.execution_count, f"{cell.id} did not run"
        if "check" in cell.metadata.get("tags", ()):
            checks[cell.id] = ("NotImplementedError", f"exercise {cell.metadata.exercise}")
        assert not too_wide(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "error":
                failed[cell.id] = (output.ename, output.evalue.split(":")[0])
                assert len(output.traceback) == 1 and "is still blank" in output.traceback[0]
    assert checks and failed == checks


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=Path.as_posix)
def test_cells_are_short_and_carry_no_results(notebook):
    content = nbformat.read(ROOT / notebook, as_version=4)
    nbformat.validate(content)
    assert (ROOT / notebook).stat().st_size < LARGEST
    assert "widgets" not in content.metadata
    for cell in content.cells:
        if cell.cell_type == "markdown":
            assert count_words(cell.source) <= PROSE_WORDS, cell.source
            continue
        is_answer = {"solution", "stub"} & set(cell.metadata.get("tags", ()))
        limit = ANSWER_LINES if is_answer else CODE_LINES
        assert len(cell.source.splitlines()) <= limit, cell.source
        assert not cell.outputs and cell.execution_count is None
