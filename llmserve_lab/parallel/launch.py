"""How this process finds the others that torchrun started."""

from __future__ import annotations

import atexit
import os
import sys
from functools import lru_cache

import torch
import torch.distributed as dist

from llmserve_lab.parallel.ranks import Ranks

VARIABLES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


@lru_cache(maxsize=1)
def join() -> Ranks:
    """Rank 0 gets its `Ranks`. In the other processes this call does not return: they carry out
    what rank 0 asks for until it ends, and end too.

    Raises:
        ValueError: torchrun did not start this process, or started more than there are GPUs.
    """
    kind = _device_type()
    _require_torchrun()
    if kind == "cuda":
        _take_gpu()
    if not dist.is_initialized():
        dist.init_process_group(BACKENDS[kind])
    ranks = Ranks()
    if ranks.rank > 0:
        ranks.follow()
        sys.exit()
    atexit.register(ranks.end)
    return ranks


def _device_type() -> str:
    """What transformers shares a model on, found as it finds it."""
    found = torch.accelerator.current_accelerator()
    kind = "cpu" if found is None else found.type
    if kind not in BACKENDS or not dist.is_available():
        raise ValueError(
            f"tensor_parallel runs on CUDA GPUs, or on CPUs to try it out; here is {kind}."
        )
    return kind


def _require_torchrun() -> None:
    if any(name not in os.environ for name in VARIABLES):
        raise ValueError(
            "tensor_parallel needs one process for each GPU: start the script with "
            "torchrun --nproc-per-node 2 SCRIPT.py, for two of them."
        )


def _take_gpu() -> None:
    gpus, processes = torch.cuda.device_count(), int(os.environ["LOCAL_WORLD_SIZE"])
    if processes > gpus:
        raise ValueError(
            f"torchrun started {processes} processes for the {gpus} GPUs that are here: start it "
            f"with --nproc-per-node {gpus}."
        )
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
