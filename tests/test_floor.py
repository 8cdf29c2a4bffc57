"""The oldest transformers that pyproject.toml allows. Optional: it installs packages, so it runs
only where the environment variable below is set."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

ASKED = "LLMSERVE_LAB_TEST_FLOOR"
ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/attention", "tests/models/test_families.py", "tests/engine/test_greedy.py",
    "tests/parallel",
)  # fmt: skip


def floor():
    requirement = r'"transformers>=([\d.]+)"'
    return re.search(requirement, (ROOT / "pyproject.toml").read_text())[1]


def python(*arguments, path=""):
    """What this environment's Python prints, with the packages at `path` before its own."""
    variables = os.environ | {"PYTHONPATH": str(path)}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


@pytest.mark.skipif(not os.environ.get(ASKED), reason=f"set {ASKED}=1 to install and test it")
def test_the_oldest_transformers(tmp_path):
    """Together with the packages that it needs in its turn, but this environment's numpy."""
    wanted = (f"transformers=={floor()}", f"numpy=={numpy.__version__}")
    python("-m", "pip", "install", "-q", "--target", tmp_path, *wanted)
    shown = python("-c", "import transformers; print(transformers.__version__)", path=tmp_path)
    assert shown.startswith(floor())
    print(python("-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, path=tmp_path))
