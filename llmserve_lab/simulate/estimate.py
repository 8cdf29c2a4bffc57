"""How long a decode step takes at least, and what it needs: the roofline (Williams et al. 2009)."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_lab.engine.step_load import StepLoad
from llmserve_lab.simulate.gpus import Gpu
from llmserve_lab.simulate.model_size import ModelSize


@dataclass(frozen=True, slots=True)
class Estimate:
    """One decode step of a batch. seconds: a floor, which no implementation goes below."""

    batch_size: int
    seconds: float
    memory_bytes: int
    bound: str  # "bandwidth" or "compute"

    @property
    def tokens_per_second(self) -> float:
        return self.batch_size / self.seconds


def decode_estimate(model: ModelSize, gpu: Gpu, batch_size: int, context: int) -> Estimate:
    """A step that adds one token to each of `batch_size` requests of `context` tokens.

    It reads every weight once (of experts those that are chosen) and every request's KV, and does
    two operations per weight and request besides attention's: see `ModelWork`. The slower of the
    two decides.
    """
    work = model.work.of_load(StepLoad.decode(batch_size, context))
    reading, computing = work.num_bytes / gpu.bandwidth, work.flops / gpu.flops
    bound = "bandwidth" if reading >= computing else "compute"
    memory = model.weight_bytes + model.kv_bytes(batch_size * context)
    return Estimate(batch_size, max(reading, computing), memory, bound)
