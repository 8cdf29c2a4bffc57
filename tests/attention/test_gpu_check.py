"""benchmarks/gpu_check.py without a GPU; what it can check there is in interpreted_triton.py."""

import sys

import pytest
import torch

from benchmarks import gpu_check


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
