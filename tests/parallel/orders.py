"""What tests ask every process to do; it has to be in a module that all can import."""

import gc

import torch
import torch.distributed as dist

from llmserve_lab.engine import capacity
from llmserve_lab.parallel.ranks import Ranks


def rank():
    return dist.get_rank()


def sum_over_ranks(number):
    total = torch.tensor([number + dist.get_rank()])
    dist.all_reduce(total)
    return total.item()


def fail_on(failing_rank):
    if dist.get_rank() == failing_rank:
        raise ValueError(f"this is rank {failing_rank}")


def numbered_list(*items):
    return [dist.get_rank(), *items]


def set_cpu_budget(num_bytes):
    """For this process alone: rank r gets r times less."""
    before = capacity.CPU_CACHE_BYTES
    capacity.CPU_CACHE_BYTES = num_bytes // (1 + dist.get_rank())
    return before


def kv_bytes(runner):
    return runner.cache.num_bytes


def held_bytes(model):
    """Of the weights that lie in this process."""
    weights = [getattr(p, "to_local", lambda p=p: p)() for p in model.parameters()]
    return sum(weight.nbytes for weight in weights)


def num_objects():
    """That are kept for rank 0, of all `Ranks` in this process."""
    gc.collect()
    return sum(len(one._objects) for one in gc.get_objects() if type(one) is Ranks)
