"""The dtype follows the GPU's compute capability, never a claim of bf16 support."""

import pytest
import torch

from llmserve_lab import machine
from llmserve_lab.models import hardware
from llmserve_lab.models.hardware import THREAD_SETTINGS, fit_threads, pick_device, pick_dtype

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


@pytest.mark.parametrize(
    ("threads", "cores", "setting", "wanted"),
    [
        (8, 2, None, 2),
        (8, 8, None, 8),
        (1, 2, None, 1),  # fewer were asked for
        (8, 2, "OMP_NUM_THREADS", 8),
        (8, 2, "MKL_NUM_THREADS", 8),
    ],
)
def test_no_more_threads_than_cores(monkeypatch, threads, cores, setting, wanted):
    chosen = [threads]
    monkeypatch.setattr(hardware, "usable_cores", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: chosen[-1])
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    for name in THREAD_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    if setting:
        monkeypatch.setenv(setting, str(threads))
    fit_threads()
    assert chosen[-1] == wanted


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("200000 100000", 2), ("50000 100000", 1), ("350000 100000", 3), ("9900000 100000", 6),
        ("max 100000", 6), ("", 6), ("junk", 6), (None, 6),
    ],
)  # fmt: skip
def test_a_container_may_leave_fewer_cores(monkeypatch, tmp_path, content, wanted):
    """Six cores, of which a control group leaves some time."""
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: range(6), raising=False)
    limit = tmp_path / "cpu.max"
    if content is not None:
        limit.write_text(content)
    assert machine.usable_cores(limit) == wanted
