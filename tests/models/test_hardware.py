"""The dtype follows the GPU's compute capability, never a claim of bf16 support."""

import pytest
import torch

from llmserve_lab.models.hardware import pick_device, pick_dtype

CASES = [((7, 0), torch.float16), ((7, 5), torch.float16), ((8, 0), torch.bfloat16)]
CASES += [((8, 9), torch.bfloat16), ((9, 0), torch.bfloat16), ((12, 0), torch.bfloat16)]


def test_a_cpu_computes_in_fp32():
    dtype, reason = pick_dtype(torch.device("cpu"))
    assert dtype is torch.float32
    assert "CPU" in reason


@pytest.mark.parametrize(("capability", "expected"), CASES)
def test_gpus_below_8_0_never_get_bf16(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *args, **kwargs: True)
    dtype, reason = pick_dtype(torch.device("cuda"))
    assert dtype is expected
    assert f"{capability[0]}.{capability[1]}" in reason


@pytest.mark.parametrize("gpu", [True, False])
def test_the_gpu_is_used_where_there_is_one(monkeypatch, gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert pick_device().type == ("cuda" if gpu else "cpu")


def test_the_pick_computes_on_this_machine():
    device = pick_device()
    dtype, _ = pick_dtype(device)
    ones = torch.ones(2, 2, device=device, dtype=dtype)
    assert (ones @ ones).tolist() == [[2.0, 2.0], [2.0, 2.0]]
