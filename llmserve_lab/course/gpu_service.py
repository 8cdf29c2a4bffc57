"""A 7B model on one GPU under load, with a limit on its batch: simulated, always the same."""

from __future__ import annotations

from llmserve_lab.simulate import (
    GPUS,
    Deployment,
    LoadResult,
    LogNormal,
    ModelSize,
    Poisson,
    Simulator,
    Workload,
)

PROMPT_TOKENS, ANSWER_TOKENS = (512, 0.5, 64, 2048), (96, 0.5, 16, 384)  # of `LogNormal`
BANDWIDTH_SHARE, FLOPS_SHARE = 0.7, 0.5  # of the data sheet: assumptions
SEED = 11


def serve_on_gpu(limit: int, gpu: str = "L4", rate: float = 2.0, count: int = 80) -> LoadResult:
    """Serve `count` random requests at `rate` per second, at most `limit` in a step.

    gpu: a name in `GPUS` on which a 7B model in 16 bits fits.

    Raises:
        KeyError: no such GPU.
        ValueError, TypeError: the model does not fit, or a setting that makes no sense.
    """
    machine = Deployment(
        ModelSize.llama2_7b(), GPUS[gpu], bandwidth_share=BANDWIDTH_SHARE, flops_share=FLOPS_SHARE
    )
    lengths = LogNormal(*PROMPT_TOKENS), LogNormal(*ANSWER_TOKENS)
    workload = Workload.draw(count, *lengths, Poisson(rate), seed=SEED)
    return Simulator(machine, max_num_seqs=limit).run(workload)
