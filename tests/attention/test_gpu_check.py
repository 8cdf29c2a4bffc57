"""benchmarks/gpu_check.py without a GPU; what it can check there is in interpreted_triton.py."""

import sys

import pytest
import torch

from benchmarks import gpu_check
from llmserve_lab.attention import backend
from llmserve_lab.attention.backend import Case, working

FP16 = torch.float16


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_check"])
    assert gpu_check.main() == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("There is no CUDA GPU here, so nothing was checked; --interpret")


def test_bytes_read_are_those_of_keys_and_values():
    shape = gpu_check.Shape("decode", [(9, 1), (0, 20)], (4, 2), 8)
    problem = gpu_check.Problem(shape, torch.float16, torch.device("cpu"))
    assert problem.bytes_read == 2 * (10 + 20) * 2 * 8 * 2


def test_a_share_of_bandwidth_is_bytes_by_time(monkeypatch):
    """With the cpu backend in a GPU's place, and half a second for each call."""
    calls = []
    monkeypatch.setattr(gpu_check, "seconds", lambda run: calls.append(run()) or 0.5)
    shape = gpu_check.Shape("decode", [(9, 1), (30, 1)], (4, 2), 8, timed=True)
    problem = gpu_check.Problem(shape, torch.float32, torch.device("cpu"))
    (result,) = gpu_check.compare(problem, ["cpu"], bandwidth=problem.bytes_read * 8)
    assert (result.ms, result.share, result.ok) == (500, 0.25, True)
    assert result.line().endswith("500.000 ms   25.0%")
    assert len(calls) == 1


def test_the_large_shapes_try_both_backends(monkeypatch):
    """On an Ampere GPU's stand-in."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(backend, "find_spec", lambda name: True)
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    seen = set()
    for shape in gpu_check.LARGE:
        needs = frozenset(shape.options)
        case = Case(torch.device("cuda"), FP16, False, needs, shape.block_size, shape.dim)
        seen |= {(shape.block_size, name) for name in working(case)}
    assert {(16, "triton"), (3, "triton"), (256, "triton"), (256, "flash")} <= seen
    assert (16, "flash") not in seen
