"""The triton backend where there is no GPU: run by Triton's interpreter, compiled for real GPUs."""

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.attention.dense import PagedCase

ROOT = Path(__file__).resolve().parents[2]
KIB = 1024
# Compute capability, and the shared memory that a block may use (CUDA programming guide, table of
# technical specifications)
T4, A100, A10, H100, RTX_5090 = (75, 64), (80, 163), (86, 99), (90, 227), (120, 99)

INSTALLED = ()
if find_spec("triton"):
    INSTALLED = tuple(map(int, version("triton").split(".")[:2]))
pytestmark = pytest.mark.skipif(not INSTALLED, reason="needs triton (Linux)")


@pytest.mark.skipif(
    INSTALLED < (3, 7), reason="older interpreters do not run with the NumPy of today"
)
def test_in_the_interpreter():
    env = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "tests/attention/interpreted_triton.py"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class Launches:
    """In a kernel's place: keeps what it would have been launched with."""

    def __init__(self, kernel):
        self.kernel, self.calls = kernel, []

    def __getitem__(self, grid):
        return lambda *arguments, **constants: self.calls.append((arguments, constants))


@pytest.fixture
def launches(monkeypatch, tmp_path):
    from llmserve_lab.attention import triton

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # nothing compiled earlier is taken
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # else Triton 3.9 warns
    kept = [Launches(triton.attend), Launches(triton.merge)]
    monkeypatch.setattr(triton, "attend", kept[0])
    monkeypatch.setattr(triton, "merge", kept[1])
    return kept


def compiled(launch, capability):
    """The kernels of a launch, compiled for a GPU that need not be here."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    for arguments, constants in launch.calls:
        names = [parameter.name for parameter in launch.kernel.params]
        types = {n: type_of(a) for n, a in zip(names, arguments, strict=False)}
        types |= dict.fromkeys(constants, "constexpr")
        source = ASTSource(launch.kernel, {name: types[name] for name in names}, constants)
        yield compile(source, target=GPUTarget("cuda", capability, 32))


def type_of(argument):
    if isinstance(argument, torch.Tensor):
        name = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
        return "*" + name.get(argument.dtype, "i64")
    return "fp32" if isinstance(argument, float) else "i32"


def run_on(gpu, monkeypatch, dtype, heads, dim, segments, block_size=16, **options):
    """As on that GPU, up to the launch."""
    from llmserve_lab.attention import triton

    fast = gpu[0] >= 80 and dtype != torch.float32
    monkeypatch.setattr(triton, "has_tensor_cores", lambda queries: fast)
    PagedCase(segments, heads, dim, block_size, dtype).run(triton.paged_attention, **options)


@pytest.mark.parametrize(
    ("gpu", "dtype", "heads", "dim"),
    [
        (T4, torch.float16, (4, 1), 128),
        (T4, torch.float32, (2, 2), 256),
        (A100, torch.bfloat16, (4, 1), 128),
        (A10, torch.float16, (7, 1), 256),
        (H100, torch.bfloat16, (1, 1), 64),
        (RTX_5090, torch.bfloat16, (8, 1), 80),
    ],
)
def test_decode_compiles_for(gpu, dtype, heads, dim, launches, monkeypatch):
    """A long context, so that it is split and merged; within the GPU's shared memory, and on its
    tensor cores where the backend counts on them."""
    run_on(gpu, monkeypatch, dtype, heads, dim, [(600, 1), (3, 1)])
    (attend,), (merge,) = (list(compiled(launch, gpu[0])) for launch in launches)
    assert max(attend.metadata.shared, merge.metadata.shared) <= gpu[1] * KIB
    assert ("mma" in attend.asm["ptx"]) == (gpu[0] >= 80)


@pytest.mark.parametrize(
    ("gpu", "dtype", "heads", "dim", "options"),
    [
        (A100, torch.float16, (4, 1), 128, {"window": 64, "softcap": 30.0}),
        (A10, torch.bfloat16, (2, 1), 256, {}),
        (H100, torch.bfloat16, (4, 1), 128, {}),
    ],
)
def test_prefill_compiles_for(gpu, dtype, heads, dim, options, launches, monkeypatch):
    run_on(gpu, monkeypatch, dtype, heads, dim, [(40, 200)], **options)
    (attend,) = compiled(launches[0], gpu[0])
    assert attend.metadata.shared <= gpu[1] * KIB
    assert "mma" in attend.asm["ptx"]


def test_without_tensor_cores_prefill_goes_the_way_of_the_reference(launches, monkeypatch):
    run_on(T4, monkeypatch, torch.float32, (4, 1), 32, [(0, 9), (3, 1)])
    ((_, constants),) = launches[0].calls
    assert constants["SINGLE"]
