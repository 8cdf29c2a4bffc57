"""Which attention is chosen on which machine, and what a refusal says. The GPUs are stand-ins."""

import pytest
import torch

from llmserve_lab import LLM
from llmserve_lab.attention import backend, cpu, reference
from llmserve_lab.attention.backend import BACKENDS, Case, attention_backend, fastest, working

CPU, CUDA, MPS = map(torch.device, ("cpu", "cuda", "mps"))
FP32, FP16, BF16, FP64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
T4, AMPERE = (7, 5), (8, 0)
WINDOW, SOFTCAP, SINKS = (frozenset([name]) for name in ("window", "softcap", "sinks"))


@pytest.fixture
def machine(monkeypatch):
    """Sets the GPU, and which packages are installed."""

    def be(capability=AMPERE, packages=("triton", "numba"), torch_version="2.13.0+cu130"):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(backend, "find_spec", lambda name: name in packages or None)
        monkeypatch.setattr(torch, "__version__", torch_version)

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    be()
    return be


@pytest.mark.parametrize(
    ("capability", "case", "chosen"),
    [
        (AMPERE, Case(CUDA, BF16, block_size=256), "flash"),
        (AMPERE, Case(CUDA, FP16, block_size=512, needs=WINDOW), "flash"),
        ((12, 0), Case(CUDA, BF16, block_size=256, head_dim=128), "flash"),
        (AMPERE, Case(CUDA, BF16), "triton"),  # blocks of 16
        (AMPERE, Case(CUDA, BF16, block_size=256, needs=SOFTCAP), "triton"),
        (AMPERE, Case(CUDA, BF16, block_size=256, head_dim=100), "triton"),
        (AMPERE, Case(CUDA, FP32, block_size=256), "triton"),
        (T4, Case(CUDA, FP16, block_size=256), "triton"),
        (T4, Case(CUDA, BF16), "reference"),
        ((7, 0), Case(CUDA, FP16), "reference"),
        (AMPERE, Case(CUDA, FP64), "reference"),
        (AMPERE, Case(CUDA, BF16, head_dim=512), "reference"),
        (AMPERE, Case(CUDA, BF16, needs=SINKS), "reference"),
        (AMPERE, Case(CUDA, BF16, quantized_kv=True, block_size=256), "reference"),
        (AMPERE, Case(CPU, FP32), "cpu"),
        (AMPERE, Case(CPU, FP32, needs=WINDOW | SOFTCAP), "cpu"),
        (AMPERE, Case(CPU, FP32, quantized_kv=True), "reference"),
        (AMPERE, Case(CPU, BF16), "cpu"),
        (AMPERE, Case(CPU, FP16), "reference"),
        (AMPERE, Case(MPS, FP32), "reference"),
    ],
)
def test_the_fastest_that_works(machine, capability, case, chosen):
    machine(capability)
    assert fastest(case) == chosen
    assert chosen in working(case)


def test_without_triton_or_an_older_torch(machine):
    machine(packages=["numba"])
    assert fastest(Case(CUDA, BF16)) == "reference"
    machine(torch_version="2.11.0")
    assert fastest(Case(CUDA, BF16, block_size=256)) == "triton"


@pytest.mark.parametrize(
    ("name", "capability", "case", "reason"),
    [
        ("cpu", AMPERE, Case(CUDA, FP32), "the model is on cuda"),
        ("cpu", AMPERE, Case(CPU, FP16), "it computes in float32 and bfloat16 and the model is in"),
        ("cpu", AMPERE, Case(CPU, FP32, True), "the KV cache is quantized"),
        ("cpu", AMPERE, Case(CPU, FP32, needs=SINKS), "it does not compute sinks, which the model"),
        ("triton", AMPERE, Case(CPU, FP32), "the model is on cpu and it needs a CUDA GPU"),
        ("triton", AMPERE, Case(MPS, FP32), "the model is on mps and it needs a CUDA GPU"),
        ("triton", (7, 0), Case(CUDA, FP16), "it needs compute capability 7.5 and the GPU has 7.0"),
        ("triton", T4, Case(CUDA, BF16), "bfloat16 needs compute capability 8.0 and the GPU has"),
        (
            "triton",
            T4,
            Case(CUDA, FP64),
            "it computes in 16 or 32 bits and the model is in torch.f",
        ),
        ("triton", T4, Case(CUDA, FP16, True), "the KV cache is quantized"),
        ("triton", T4, Case(CUDA, FP16, head_dim=512), "up to 256, and the model's is 512"),
        ("flash", AMPERE, Case(CPU, FP16), "the model is on cpu and it needs a CUDA GPU"),
        ("flash", AMPERE, Case(CUDA, FP32), "it computes in 16 bits and the model is in"),
        ("flash", T4, Case(CUDA, FP16, block_size=256), "it needs compute capability 8.0 and the"),
        ("flash", AMPERE, Case(CUDA, FP16), r"not of 16 \(set block_size=256\)"),
        ("flash", AMPERE, Case(CUDA, FP16, True, block_size=256), "the KV cache is quantized"),
        ("flash", AMPERE, Case(CUDA, FP16, needs=SOFTCAP, block_size=256), "not compute softcap"),
        ("flash", AMPERE, Case(CUDA, FP16, head_dim=100, block_size=256), "multiples of 8 up to"),
    ],
)
def test_a_refusal_names_its_reason(machine, name, capability, case, reason):
    machine(capability)
    with pytest.raises(ValueError, match=rf"^The {name} attention backend .*here: .*{reason}"):
        attention_backend(
            name, case.device, case.dtype, case.quantized_kv, case.needs, case.block_size,
            case.head_dim,
        )  # fmt: skip


def test_a_package_or_a_torch_that_is_missing(machine):
    machine(packages=[])
    with pytest.raises(ValueError, match=r"triton is not installed \(pip install triton\)"):
        attention_backend("triton", CUDA, FP16)
    with pytest.raises(ValueError, match=r"numba is not installed \(pip install numba\)"):
        attention_backend("cpu", CPU, FP32)
    machine(torch_version="2.11.0")
    with pytest.raises(ValueError, match=r"torch 2\.11\.0 has no block tables for it, 2\.13 has"):
        attention_backend("flash", CUDA, FP16, block_size=256)


def test_the_interpreter_stands_in_for_a_gpu_when_asked_by_name(machine, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "triton" in working(Case(CPU, FP16))
    assert fastest(Case(CPU, FP32)) == "cpu"
    with pytest.raises(ValueError, match="interpreter does not multiply bfloat16"):
        attention_backend("triton", CPU, BF16)


def test_no_such_backend():
    with pytest.raises(ValueError, match="use 'auto' or one of reference, cpu, triton, flash"):
        attention_backend("fast", CPU, FP32)


def test_the_function_is_that_of_the_backend():
    assert attention_backend("reference", CPU, BF16) is reference.paged_attention
    assert attention_backend("auto", CPU, FP32) is cpu.paged_attention


@pytest.mark.parametrize("name", [name for name in BACKENDS if name in ("triton", "flash")])
def test_the_engine_says_so_too(tiny, name, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match=f"The {name} attention backend does not work here"):
        LLM(tiny, num_blocks=8, attention_backend=name)
