"""The doctor's table: what it finds, what it advises, and that a broken part hides no other."""

import importlib
import importlib.metadata
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from llmserve_lab import machine
from llmserve_lab.doctor import Report, Row, doctor

module = importlib.import_module("llmserve_lab.doctor")  # the package's `doctor` is the function
ROOT = Path(__file__).resolve().parents[1]
NAMES = ["Python", "torch", "Device", "dtype", "Threads", "Memory", "Widgets"]
NAMES += ["Bundled models", "Model hub"]


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_every_part_has_its_row(offline):
    report = doctor()
    assert [row.name for row in report.rows] == NAMES
    assert all(row.advice for row in report.rows if row.state == "fix")
    assert torch.__version__ in report.text()


def test_one_broken_check_is_a_red_row_and_the_others_still_show(monkeypatch):
    def check_torch():
        raise ImportError("libtorch.so is gone")

    monkeypatch.setattr(module, "CHECKS", (module.check_python, check_torch, module.check_models))
    rows = doctor().rows
    assert [row.name for row in rows] == ["Python", "Torch", "Bundled models"]
    assert rows[1].state == "fix"
    assert "libtorch.so is gone" in rows[1].found
    assert "--reset" in rows[1].advice


def test_red_rows_name_what_to_fix_and_set_the_exit_code(monkeypatch, capsys):
    red = Row("Widgets", "fix", "plotly 1.0", "Run pip install plotly.")
    monkeypatch.setattr(module, "CHECKS", (lambda: red,))
    assert module.main() == 1
    printed = capsys.readouterr().out
    assert "Run pip install plotly." in printed
    assert "To fix: Widgets." in printed
    assert "\033[" not in printed  # no colours into a pipe
    monkeypatch.setattr(module, "CHECKS", (lambda: Row("Widgets", "note", "old"),))
    assert module.main() == 0


def test_the_notebook_table_is_escaped_html_with_a_word_for_each_colour():
    page = Report((Row("<b>", "fix", "a < b", "c & d"), Row("x", "ok", "y")))._repr_html_()
    assert "&lt;b&gt;" in page
    assert "a &lt; b" in page
    assert "c &amp; d" in page
    assert re.findall(r"aria-label='(\w+)'", page) == ["fix", "ok"]


def test_lines_of_the_terminal_table_stand_under_each_other():
    report = Report((Row("a", "ok", "first"), Row("longer", "note", "second", "third")))
    first, second, third = report.text().splitlines()[:3]
    assert first.index("first") == second.index("second") == third.index("third")


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10), "fix"), ((3, 12), "ok"), ((3, 99), "note")]
)
def test_python_versions(monkeypatch, version, state):
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    assert module.check_python().state == state


def test_a_driver_without_a_gpu_in_torch_is_said(monkeypatch):
    monkeypatch.setattr(module, "has_nvidia_driver", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    row = module.check_torch()
    assert row.state == "note"
    assert "CUDA build" in row.advice


def test_little_memory_is_red(monkeypatch):
    monkeypatch.setattr(module, "memory", lambda: (8 * 2**30, 2**30))
    row = module.check_memory()
    assert (row.state, row.found) == ("fix", "8.0 GiB, 1.0 GiB free")
    monkeypatch.setattr(module, "memory", lambda: (8 * 2**30, None))
    assert module.check_memory().state == "note"


def test_more_threads_than_cores_is_said(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert "OMP_NUM_THREADS=1" in module.check_threads().advice


def test_old_and_missing_widgets_are_red_with_the_versions_to_install(monkeypatch):
    versions = {"ipywidgets": "7.6.5", "plotly": "5.24.1"}

    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    row = module.check_widgets()
    assert row.state == "fix"
    assert row.advice == 'Run pip install "ipywidgets>=7.7" "anywidget>=0.9.21"'
    versions |= {"ipywidgets": "7.7.1", "anywidget": "0.9.21"}  # Colab's
    assert module.check_widgets().state == "ok"


def test_widget_floors_are_those_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lab = project["project"]["optional-dependencies"]["lab"]
    floors = dict(requirement.split(">=") for requirement in lab)
    assert {name: floors[name] for name in module.WIDGET_FLOORS} == module.WIDGET_FLOORS


def test_the_bundled_models_are_found():
    row = module.check_models()
    assert row.state == "ok", row
    assert all(name in row.found for name in module.BUNDLED)


def test_a_copy_without_weights_is_red(tmp_path):
    folder = tmp_path / "models" / "lab-target"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(2_500_000))
    row = module.check_models(tmp_path)
    assert (row.state, row.found) == ("fix", "lab-draft missing")
    folder.rename(tmp_path / "models" / "lab-draft")
    assert module.check_models(tmp_path).found == "lab-target missing"


def test_the_hub_is_yellow_when_it_does_not_answer_and_green_when_it_does(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert module.check_hub().state == "ok"
    row = module.check_hub()  # closed now
    assert row.state == "note"
    assert "bundled models run offline" in row.advice


def test_the_hub_is_not_asked_when_switched_off(monkeypatch, offline):
    monkeypatch.setattr(module, "reachable", lambda *args: pytest.fail("asked"))
    row = module.check_hub()
    assert (row.state, "HF_HUB_OFFLINE" in row.found) == ("note", True)


def test_memory_without_psutil(tmp_path):
    table = tmp_path / "meminfo"
    table.write_text("MemTotal:  2048 kB\nMemFree: 5 kB\nMemAvailable:  1024 kB\n")
    assert machine._memory_without_psutil(table) == (2048 * 1024, 1024 * 1024)
    total, _ = machine._memory_without_psutil(tmp_path / "absent")
    assert total is None or total > 2**20


def test_memory_is_that_of_this_machine():
    total, free = machine.memory()
    assert total is None or free is None or 0 < free <= total


def test_it_runs_as_a_program(offline):
    done = subprocess.run(
        [sys.executable, "-m", "llmserve_lab.doctor"], capture_output=True, cwd=ROOT
    )
    assert done.returncode in (0, 1)
    assert "Memory" in done.stdout.decode(errors="replace")
    assert not done.stderr
