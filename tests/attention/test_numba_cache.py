"""The kernel runs where compiled code can be kept nowhere, and is kept where it can."""

import os
import subprocess
import sys
from pathlib import Path

import llmserve_lab

PACKAGE = Path(llmserve_lab.__file__).parent
RUN = (
    "import torch; from llmserve_lab.attention import cpu; cpu.prepare(torch.float32);"
    "print(cpu.__file__)"
)


def installed(folder):
    """The package as in a read-only place: nothing can be made beside its modules. (A regular file
    in the cache folder's place stops root too.)"""
    copy = folder / "llmserve_lab"
    copy.mkdir()
    for entry in PACKAGE.iterdir():
        if entry.name not in ("attention", "__pycache__"):
            (copy / entry.name).symlink_to(entry)
    (copy / "attention").mkdir()
    for source in (PACKAGE / "attention").glob("*.py"):
        (copy / "attention" / source.name).write_bytes(source.read_bytes())
    (copy / "attention" / "__pycache__").write_text("in the way")
    return copy


def run(folder, **settings):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_"))}
    environment = kept | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"} | settings
    return subprocess.run(
        [sys.executable, "-c", RUN], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_without_any_writable_folder_the_kernel_is_compiled_and_runs(tmp_path):
    copy, blocked = installed(tmp_path), tmp_path / "a file"
    blocked.write_text("")
    nowhere = str(blocked / "below")
    done = run(tmp_path, HOME=nowhere, NUMBA_CACHE_DIR=nowhere, XDG_CACHE_HOME=nowhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(copy / "attention" / "cpu.py")


def test_where_a_folder_is_writable_the_next_process_finds_the_compiled_code(tmp_path):
    installed(tmp_path)
    cache = tmp_path / "cache"
    assert run(tmp_path, HOME=str(tmp_path), NUMBA_CACHE_DIR=str(cache)).returncode == 0
    assert list(cache.rglob("cpu_kernels.decode*.nbc"))
