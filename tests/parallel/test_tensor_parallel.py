"""A model that several processes share. What needs two of them is in in_two_processes.py."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import tensor_parallel
from llmserve_lab import LLM, load

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
needs_accelerate = pytest.mark.skipif(not find_spec("accelerate"), reason="needs accelerate")


def torchrun(*command, processes=2):
    """What comes of a command under torchrun, on CPUs."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    return subprocess.run(
        [*launcher, "--nproc-per-node", str(processes), *map(str, command)],
        cwd=ROOT,
        env=os.environ | WITHOUT_GPU | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=900,
    )


@needs_accelerate
def test_two_processes():
    done = torchrun("-m", "tests.parallel.main", "-q", "-x", "-p", "no:cacheprovider",
                    "tests/parallel/in_two_processes.py")  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert " passed" in done.stdout


SCRIPT = """
from llmserve_lab import LLM, SamplingParams
print("before")
llm = LLM("lab-target", tensor_parallel=True, dtype="float32", num_blocks=8)
print("after")
(output,) = llm.generate("import os", SamplingParams(temperature=0, max_tokens=4))
print(output.outputs[0].token_ids)
"""


@needs_accelerate
@pytest.mark.parametrize("processes", [1, 2])
def test_only_rank_0_goes_on(tmp_path, processes):
    script = tmp_path / "serve.py"
    script.write_text(SCRIPT)
    done = torchrun(script, processes=processes)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines.count("before") == processes
    assert lines.count("after") == 1
    assert lines[-1].startswith("(")


@needs_accelerate
def test_a_script_that_fails_ends_all_processes(tmp_path):
    script = tmp_path / "serve.py"
    script.write_text(SCRIPT + "\n1 / 0\n")
    done = torchrun(script)
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr


@needs_accelerate
def test_the_benchmark_compares_split_and_whole(monkeypatch):
    for name, value in WITHOUT_GPU.items():
        monkeypatch.setenv(name, value)
    found = tensor_parallel.compare()
    assert (found["different"], found["tokens"]) == (0, 96)
    assert found["tokens_per_second"].keys() == {"split", "whole"}


@pytest.mark.parametrize("make", [load, LLM])
def test_without_torchrun(make, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ValueError, match=r"torchrun --nproc-per-node 2 SCRIPT\.py"):
        make("lab-target", tensor_parallel=True)


def test_a_loaded_model_is_not_split_later(tiny):
    with pytest.raises(ValueError, match="give dtype, device or tensor_parallel to load"):
        LLM(tiny, tensor_parallel=True)
