"""lab.py sets up once, says its troubles in one sentence, and takes up what was cut short.

The tool that runs venv and pip is replaced by `Tool`, which makes a real virtual environment and
puts stand-ins for the packages into it, so that nothing is downloaded. One test runs the real pip.
"""

import ast
import errno
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import lab

ROOT = Path(__file__).resolve().parents[1]
STEPS = ["venv", "torch", "course", "import"]


class Tool:
    """Does what venv, pip and the import check do, in small; fails or stops where it is told."""

    def __init__(self, failures=None, stop_at=None):
        self.failures, self.stop_at = failures or {}, stop_at
        self.commands, self.steps = [], []

    def __call__(self, command):
        step = self.step(command)
        self.commands.append(command)
        self.steps.append(step)
        if step == self.stop_at:
            raise KeyboardInterrupt
        failure = self.failures.get(step, "")
        failure = failure(command) if callable(failure) else failure
        if not failure:
            getattr(self, step)(command)
        return int(bool(failure)), failure

    def step(self, command):
        if "venv" in command:
            return "venv"
        if "-c" in command:
            return "import"
        return "course" if "-e" in command else "torch"

    def venv(self, command):
        venv.create(command[-1], symlinks=os.name != "nt")
        self.put(Path(command[-1]) / "bin" / "python", "pip")

    def torch(self, command):
        version = "2.13.0+cpu" if "--index-url" in command else "2.13.0"
        self.put(command[0], "torch")
        record = packages(command[0]) / f"torch-{version}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        )
        (record / "INSTALLER").write_text("pip")

    def course(self, command):
        extras = command[-1].rpartition("[")[2].rstrip("]").split(",")
        modules = [module for extra in extras for module in lab.MODULES[extra]]
        self.put(command[0], "llmserve_lab", *modules)

    def put(self, python, *modules):
        for module in modules:
            (packages(python) / f"{module}.py").touch()

    def __getattr__(self, name):
        if name == "import":
            return lambda command: subprocess.run(command, check=True)
        raise AttributeError(name)


def packages(python):
    base = str(Path(python).parents[1])
    return Path(sysconfig.get_path("purelib", "venv", {"base": base, "platbase": base}))


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "reachable", lambda url: False)
    monkeypatch.setattr(lab, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(lab, "become", lambda command, root, env: 0)
    folder = tmp_path / "the course"
    folder.mkdir()
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def ready(root):
    """A root that is set up for opening the course."""
    assert lab.main([], root, Tool()) == 0
    return root


def fails(capsys, arguments, root, tool=None, code=1):
    """Run lab.py, which must fail with one line, and return it."""
    assert lab.main(arguments, root, tool or Tool()) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("lab.py: ")
    return lines[0]


# Setting up once


def test_first_start_does_every_step_and_the_second_none(root):
    first, second = Tool(), Tool()
    assert lab.main([], root, first) == 0
    assert first.steps == STEPS
    assert lab.main([], root, second) == 0
    assert second.steps == []


def test_tests_add_their_extra_and_opening_is_content_with_both(ready):
    tool = Tool()
    assert lab.main(["test"], ready, tool) == 0
    assert tool.steps == ["course", "import"]
    assert tool.commands[0][-2:] == ["-e", f"{ready}[lab,test]"]
    for arguments in ([], ["test"], ["doctor"]):
        assert lab.main(arguments, ready, tool) == 0
    assert len(tool.steps) == 2


def test_a_changed_pyproject_runs_pip_again_but_keeps_torch(ready):
    with (ready / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    tool = Tool()
    assert lab.main([], ready, tool) == 0
    assert tool.steps == ["course", "import"]


def test_a_changed_pyproject_keeps_the_extras_that_are_there(ready):
    assert lab.main(["test"], ready, Tool()) == 0
    with (ready / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    tool = Tool()
    assert lab.main([], ready, tool) == 0
    assert lab.main(["test"], ready, tool) == 0
    assert [command[-1] for command in tool.commands if "-e" in command] == [f"{ready}[lab,test]"]


def test_a_moved_folder_runs_pip_again(ready):
    moved = ready.rename(ready.with_name("elsewhere"))
    tool = Tool()
    assert lab.main([], moved, tool) == 0
    assert tool.commands[0][-1] == f"{moved}[lab]"


def test_a_package_that_went_missing_is_installed_again(ready):
    (packages(lab.Environment(ready).python) / "jupyterlab.py").unlink()
    tool = Tool()
    assert lab.main([], ready, tool) == 0
    assert tool.steps == ["course", "import"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"fingerprint": 1}', "\x00"])
def test_a_spoilt_stamp_counts_as_none(ready, content):
    lab.Environment(ready).stamp.write_text(content)
    tool = Tool()
    assert lab.main([], ready, tool) == 0
    assert tool.steps == ["course", "import"]


# Which torch


@pytest.mark.parametrize(
    ("gpu", "platform", "answers", "first"),
    [
        (False, "linux", True, ["torch==2.13.0", "--index-url", lab.CPU_INDEX]),
        (False, "win32", True, ["torch==2.13.0", "--index-url", lab.CPU_INDEX]),
        (False, "linux", False, ["torch==2.13.0"]),
        (False, "darwin", True, ["torch==2.13.0"]),
        (True, "linux", True, ["torch==2.13.0"]),
    ],
)
def test_the_first_torch_asked_for(root, monkeypatch, gpu, platform, answers, first):
    monkeypatch.setattr(lab, "reachable", lambda url: answers)
    monkeypatch.setattr(sys, "platform", platform)
    sources = lab.Environment(root).torch_sources(gpu)
    assert sources[0] == first
    assert sources[-1] == ["torch>=2.11"]


def test_an_index_that_fails_gives_way_to_whatever_pip_offers(root, monkeypatch):
    monkeypatch.setattr(lab, "reachable", lambda url: True)

    def failure(command):
        if "torch>=2.11" in command:
            return ""
        return "ReadTimeoutError" if "--index-url" in command else "No matching distribution"

    tool = Tool({"torch": failure})
    assert lab.main([], root, tool) == 0
    assert tool.steps == ["venv", "torch", "torch", "torch", "course", "import"]


def test_a_full_disk_ends_the_search_for_a_torch(root, monkeypatch, capsys):
    monkeypatch.setattr(lab, "reachable", lambda url: True)
    tool = Tool({"torch": "OSError: [Errno 28] No space left on device"})
    assert "disk is full" in fails(capsys, [], root, tool)
    assert tool.steps == ["venv", "torch"]


@pytest.mark.parametrize(("version", "kept"), [("2.11.0", True), ("2.10.1", False)])
def test_a_torch_is_replaced_only_when_too_old(root, version, kept):
    first = Tool(stop_at="torch")
    assert lab.main([], root, first) == 130
    first.torch([lab.Environment(root).python])
    record = packages(lab.Environment(root).python) / "torch-2.13.0.dist-info"
    text = (record / "METADATA").read_text().replace("2.13.0", version)
    (record / "METADATA").write_text(text)
    record.rename(record.with_name(f"torch-{version}.dist-info"))
    tool = Tool()
    assert lab.main([], root, tool) == 0
    assert ("torch" not in tool.steps) == kept


def test_gpu_by_device_files(tmp_path, monkeypatch):
    monkeypatch.setattr(lab.shutil, "which", lambda *args, **kwargs: None)
    assert not lab.has_nvidia_gpu(tmp_path)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert not lab.has_nvidia_gpu(tmp_path)
    (tmp_path / "dev" / "nvidia0").touch()
    assert lab.has_nvidia_gpu(tmp_path)


@pytest.mark.parametrize(("listed", "found"), [("GPU 0: T4 (UUID: x)\n", True), ("", False)])
def test_gpu_by_nvidia_smi(tmp_path, monkeypatch, listed, found):
    monkeypatch.setattr(lab.shutil, "which", lambda *args, **kwargs: "nvidia-smi")
    monkeypatch.setattr(lab, "ask", lambda command, seconds=0: listed)
    assert lab.has_nvidia_gpu(tmp_path) == found


def test_a_dead_address_is_not_reachable():
    assert not lab.reachable("http://127.0.0.1:9")


# Cut short


@pytest.mark.parametrize("step", STEPS)
def test_what_is_stopped_is_taken_up_by_the_next_start(root, capsys, step):
    line = fails(capsys, [], root, Tool(stop_at=step), code=130)
    assert "start it again" in line
    assert not lab.Environment(root).stamp.exists()
    tool = Tool()
    assert lab.main([], root, tool) == 0
    expected = STEPS if step in ("venv", "torch") else STEPS[2:]
    assert tool.steps == (expected[1:] if step == "torch" else expected)
    assert lab.Environment(root).stamp.exists()


@pytest.mark.parametrize("step", STEPS)
def test_what_failed_is_taken_up_by_the_next_start(root, capsys, step):
    fails(capsys, [], root, Tool({step: "something odd\nlast words"}))
    assert not lab.Environment(root).stamp.exists()
    assert lab.main([], root, Tool()) == 0


def test_a_stopped_upgrade_is_not_taken_for_the_old_set_up(ready):
    assert lab.main(["test"], ready, Tool(stop_at="course")) == 130
    tool = Tool()
    assert lab.main([], ready, tool) == 0
    assert tool.steps == ["course", "import"]


def test_a_half_installed_package_is_forgotten_so_that_pip_installs_it(ready):
    record = packages(lab.Environment(ready).python) / "torch-2.13.0.dist-info"
    (record / "INSTALLER").unlink()
    lab.Environment(ready).stamp.unlink()
    tool = Tool()
    assert lab.main([], ready, tool) == 0
    assert tool.steps == ["torch", "course", "import"]


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_ctrl_c_reaches_the_tool_and_leaves_no_traceback():
    tool = "print('ready', flush=True); import time; time.sleep(60)"
    code = (
        "import lab, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it\n"
        f"stage = lambda *given: lab.run_tool([sys.executable, '-c', {tool!r}])\n"
        "lab.Environment.prepare = stage\n"
        "sys.exit(lab.main([]))"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, start_new_session=True, **pipes
    )
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "start it again" in errors
    assert "Traceback" not in errors


# Troubles, each in one sentence


def test_too_old_a_python_is_told_so():
    code = "import sys, runpy; sys.version_info = (3, 8, 1); runpy.run_path('lab.py')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer, and this is Python 3.8" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_old_python_can_read_the_file():
    ast.parse((ROOT / "lab.py").read_text(encoding="utf-8"), feature_version=(3, 7))


def test_lab_py_needs_the_standard_library_only():
    tree = ast.parse((ROOT / "lab.py").read_text(encoding="utf-8"))
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_a_python_without_venv_names_the_debian_package(root, monkeypatch, capsys, missing):
    find = lab.importlib.util.find_spec
    monkeypatch.setattr(
        lab.importlib.util, "find_spec", lambda n: None if n == missing else find(n)
    )
    line = fails(capsys, [], root)
    assert f"apt install python3.{sys.version_info[1]}-venv" in line
    assert not (root / ".venv").exists()


@pytest.mark.parametrize(
    ("step", "said", "sentence"),
    [
        ("torch", "OSError: [Errno 28] No space left on device: 'x'", "disk is full"),
        ("course", "OSError: [WinError 112] There is not enough space on the disk", "disk is full"),
        ("venv", "Error: [Errno 28] No space left on device", "disk is full"),
        ("torch", "WARNING: NewConnectionError(...)\nERROR: No matching", "cannot be reached"),
        ("course", "socket.gaierror: getaddrinfo failed", "cannot be reached"),
        ("course", "SSLError(SSLCertVerificationError(1", "PIP_CERT"),
        ("course", "OSError: [Errno 13] Permission denied: 'x'", "cannot be written to"),
        ("torch", "ERROR: Could not find a version", "no torch for this Python"),
        ("course", "ERROR: metadata-generation-failed", "metadata-generation-failed"),
        ("import", "Traceback ...\nImportError: libfoo.so", "ImportError: libfoo.so"),
    ],
)
def test_failures_of_venv_and_pip(root, capsys, step, said, sentence):
    line = fails(capsys, [], root, Tool({step: said}))
    assert sentence in line
    assert "Traceback" not in line


def test_unknown_failures_are_kept_in_a_file(root, capsys):
    line = fails(capsys, [], root, Tool({"course": "first\nlast words"}))
    errors = lab.Environment(root).errors
    assert str(errors) in line
    assert errors.read_text() == "first\nlast words"


def test_a_full_disk_is_noticed_before_anything_is_written(root, monkeypatch, capsys):
    monkeypatch.setattr(
        lab.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 8, 10**9)
    )
    line = fails(capsys, [], root)
    assert "needs about 4 GB" in line
    assert "1.0 GB are free" in line
    assert not (root / ".venv").exists()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder(root, monkeypatch, capsys, number):
    def refuse(dir):
        raise OSError(number, os.strerror(number), str(dir))

    monkeypatch.setattr(lab.tempfile, "TemporaryFile", refuse)
    assert "cannot be written to" in fails(capsys, [], root)
    assert not (root / ".venv").exists()


def test_a_read_only_folder_that_is_set_up_still_opens(ready, monkeypatch):
    monkeypatch.setattr(lab.tempfile, "TemporaryFile", lambda **kwargs: pytest.fail("tried"))
    assert lab.main([], ready, Tool()) == 0


def test_a_broken_environment_offers_reset_and_reset_rebuilds_it(ready, capsys):
    python = lab.Environment(ready).python
    python.unlink()
    python.write_text("not a program")
    assert "--reset" in fails(capsys, [], ready)
    tool = Tool()
    assert lab.main(["--reset"], ready, tool) == 0
    assert tool.steps == STEPS


def test_an_environment_without_pip_offers_reset(ready, capsys):
    (packages(lab.Environment(ready).python) / "pip.py").unlink()
    assert "--reset" in fails(capsys, [], ready)


def test_an_environment_of_an_old_python_offers_reset(ready, monkeypatch, capsys):
    monkeypatch.setattr(lab, "ask", lambda command, seconds=0: "3.10.4")
    line = fails(capsys, [], ready)
    assert "Python 3.10.4" in line
    assert "--reset" in line


@pytest.mark.parametrize("arguments", [[], ["--reset"]])
def test_a_folder_that_is_no_environment_is_left_alone(root, capsys, arguments):
    (root / ".venv").mkdir()
    (root / ".venv" / "thesis.txt").write_text("mine")
    assert "not a virtual environment" in fails(capsys, arguments, root)
    assert (root / ".venv" / "thesis.txt").read_text() == "mine"


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need rights there")
def test_reset_does_not_follow_a_link(ready, capsys):
    real = (ready / ".venv").rename(ready.parent / "shared environment")
    (ready / ".venv").symlink_to(real)
    assert "left alone" in fails(capsys, ["--reset"], ready)
    assert (real / "pyvenv.cfg").exists()


def test_a_file_in_the_way_is_said(root, capsys):
    (root / ".venv").write_text("a file")
    assert "not a virtual environment" in fails(capsys, [], root)


def test_an_empty_folder_is_used(root):
    (root / ".venv").mkdir()
    assert lab.main([], root, Tool()) == 0


def test_the_real_pip_without_a_network(root):
    shutil.copy(ROOT / "lab.py", root)
    dead = "http://127.0.0.1:9"
    env = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
    env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": dead, "PIP_RETRIES": "1"}
    env |= {"HTTPS_PROXY": dead, "https_proxy": dead}
    command = [sys.executable, "lab.py", "--no-browser"]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "package index cannot be reached" in done.stderr
    assert not lab.Environment(root).stamp.exists()


# What it becomes


def test_jupyter_opens_the_first_chapter_from_the_root(root, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    rest = ["--no-browser", "--port", "9999", "--ip=0.0.0.0"]
    command = lab.command_line("open", Path("python"), root, rest)
    assert command[:3] == ["python", "-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={root}" in command
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb" in command
    assert command[-4:] == rest
    assert "--allow-root" not in command


def test_root_may_open_it_too(root, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    assert "--allow-root" in lab.command_line("open", Path("python"), root, [])


def test_arguments_of_test_go_to_pytest(root):
    command = lab.command_line("test", Path("python"), root, ["-x", "-k", "lab"])
    assert command == ["python", "-m", "pytest", *lab.AT_ONCE, "-x", "-k", "lab"]


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ([], ("open", False, [])),
        (["--port", "1", "--reset"], ("open", True, ["--port", "1"])),
        (["test", "--reset", "-x"], ("test", True, ["-x"])),
        (["doctor"], ("doctor", False, [])),
    ],
)
def test_arguments(arguments, parsed):
    assert lab.parse(arguments) == parsed


def test_an_unknown_command_changes_nothing(root, capsys):
    assert "'tset'" in fails(capsys, ["tset", "--reset"], root)
    assert not (root / ".venv").exists()


def test_help_sets_nothing_up(root, capsys):
    assert lab.main(["--help"], root, Tool()) == 0
    assert "lab.py doctor" in capsys.readouterr().out
    assert not (root / ".venv").exists()


def test_the_environment_is_active_and_jupyter_reads_our_settings(root, monkeypatch):
    monkeypatch.setenv("PATH", "before")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "theirs")
    env = lab.variables(lab.Environment(root))
    assert env["PATH"].split(os.pathsep) == [str(lab.Environment(root).bin), "before"]
    assert env["JUPYTER_CONFIG_PATH"].split(os.pathsep) == [str(root), "theirs"]


def test_jupyterlab_reads_the_file_that_turns_the_news_off_and_wraps_code(monkeypatch):
    from jupyterlab_server.settings_utils import _get_overrides

    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(ROOT))
    overrides, trouble = _get_overrides(str(ROOT / "absent"))
    assert not trouble
    settings = overrides["@jupyterlab/apputils-extension:notification"]
    assert settings == {"fetchNews": "false", "checkForUpdates": False}
    code = overrides["@jupyterlab/notebook-extension:tracker"]["codeCellConfig"]
    assert code == {"lineWrap": True}  # on a narrow page nothing lies beyond the right edge


@pytest.mark.skipif(os.name == "nt", reason="Windows waits for the program instead")
def test_the_program_takes_this_process_s_place(tmp_path):
    shown = "import os, sys; print(os.getcwd(), os.environ['MARK']); sys.exit(7)"
    command = [sys.executable, "-c", shown]
    code = f"import lab; lab.become({command!r}, {str(tmp_path)!r}, {{'MARK': 'x'}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 7
    assert done.stdout.split() == [str(tmp_path), "x"]
