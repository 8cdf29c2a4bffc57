"""The files that describe the package agree with each other, and the code is clean."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import lab

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "transformers", "numpy", "plotly", "ipywidgets", "anywidget", "IPython"}
HEAVY |= {"fastapi", "jupyterlab", "pandas", "safetensors", "tokenizers", "huggingface_hub"}


def run(*command):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT)


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def extras(project):
    return project["optional-dependencies"]


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, llmserve_lab; print(*{name.split('.')[0] for name in sys.modules})"
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "llmserve_lab" in loaded
    assert not loaded & HEAVY


def test_the_core_needs_only_what_runs_a_model(project):
    names = {re.match(r"[\w-]+", need).group() for need in project["dependencies"]}
    assert names == {"torch", "transformers", "safetensors", "tokenizers", "numpy", "numba"}


def test_extras_are_the_promised_ones(extras):
    assert set(extras) == {"lab", "serve", "test", "bench", "dev"}
    everything = re.fullmatch(r"llmserve-lab\[(.+)\]", extras["dev"][0]).group(1)
    assert set(everything.split(",")) == set(extras) - {"dev"}


def test_conda_gets_the_same_package_and_pythons(project, extras):
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    needs = environment["dependencies"]
    (pip,) = (need["pip"] for need in needs if isinstance(need, dict))
    assert pip == ["-e .[lab]"]
    assert "lab" in extras
    assert environment["name"] == project["name"]
    (python,) = (need for need in needs if isinstance(need, str) and need.startswith("python"))
    assert project["requires-python"].removeprefix(">=") == re.search(r">=([\d.]+)", python).group(
        1
    )
    ceiling = int(re.search(r"<3\.(\d+)", python).group(1))
    tested = [kind for kind in project["classifiers"] if re.search(r":: 3\.\d+$", kind)]
    assert max(int(kind.rsplit(".", 1)[1]) for kind in tested) == ceiling - 1
    assert not [need for need in needs if "cuda" in str(need) or "nvidia" in str(need)]


def test_lab_py_asks_for_the_same_python(project):
    wanted = tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
    source = (ROOT / "lab.py").read_text(encoding="utf-8")
    assert f"sys.version_info < {wanted}" in source


def test_containers_install_the_same_extras_torch_and_page(extras):
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    for text in (dockerfile, container["postCreateCommand"]):
        asked = re.search(r"-e '\.\[([\w,]+)\]'", text).group(1).split(",")
        assert "lab" in asked
        assert set(asked) <= set(extras)
        assert f"torch=={lab.TORCH_TESTED}" in text
        assert lab.CPU_INDEX in text
    assert lab.FIRST_PAGE in dockerfile


def test_lab_py_installs_extras_that_exist(extras):
    assert {extra for needed in lab.ACTIONS.values() for extra in needed} <= set(extras)


def test_lab_py_knows_the_floor_of_torch(project):
    assert f"torch>={lab.TORCH_FLOOR}" in project["dependencies"]
    assert lab.release(lab.TORCH_FLOOR) <= lab.release(lab.TORCH_TESTED)


def test_the_page_that_opens_exists():
    assert (ROOT / lab.FIRST_PAGE.removeprefix("/lab/tree/")).exists()


def test_the_licence_is_apache_2(project):
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("has", ["chromium", "apt-get", "broken apt-get", "neither"])
def test_ci_installs_the_browser_where_it_can_and_always_runs_the_tests(tmp_path, has):
    for tool in ("bash", "dirname", "env", "tail"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    stubs = {"python3": "echo ran $*", "id": "echo 0", has: "echo got $* >> $LOG"}
    if has == "broken apt-get":
        stubs["apt-get"] = "echo no such mirror; exit 100"
    for name, line in stubs.items():
        (tmp_path / name).write_text(f"#!{shutil.which('bash')}\n{line}\n")
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log"
    env = {"PATH": str(tmp_path), "LOG": str(log)}
    command = [str(tmp_path / "bash"), str(ROOT / ".ci" / "run"), "-x"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ran lab.py test -x"
    installed = log.read_text().splitlines() if log.exists() else []
    if has == "apt-get":
        assert installed[0].startswith("got update")
        assert "chromium" in installed[1]
    else:
        assert not installed
    assert ("will be skipped" in done.stdout) == (has in ("broken apt-get", "neither"))
    assert ("no such mirror" in done.stdout) == (has == "broken apt-get")


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=["lint", "format"])
def test_ruff(command):
    done = run("-m", "ruff", *command, ".")
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy():
    done = run("-m", "mypy")
    assert done.returncode == 0, done.stdout + done.stderr
