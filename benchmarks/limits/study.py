"""All limits of one workload, in this process."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.comparison.contestants import OURS
from benchmarks.comparison.models import folder_of
from benchmarks.comparison.workloads import Work
from benchmarks.limits import gemm, kv_waste, overhead, prefixes
from benchmarks.peers.ours import params_of, prompts_of, without_tokenizer
from llmserve_lab import LLM
from llmserve_lab.models.load import LoadedModel, load

REPEATS = 3  # at most


def limits_of(work: Work) -> dict[str, Any]:
    """What there is to say about a workload: of the shared prefix, what the cache saves."""
    study = prefix_study if work.name == "shared prefix" else product_study
    return study(work, OURS.settings, min(REPEATS, work.repeats))


def prefix_study(work: Work, settings: dict[str, Any], repeats: int) -> dict[str, Any]:
    """`prefixes.split` "with" and "without" prefix caching, of a second traced run."""
    loaded, prompts, params = _prepared(work)

    def split(caching: bool) -> dict[str, float]:
        for _ in range(2):
            llm = LLM(loaded, trace=True, **settings | {"enable_prefix_caching": caching})
            llm.generate(prompts, params)
        return prefixes.split(llm.trace)

    return {"with": split(True), "without": split(False)}


def product_study(work: Work, settings: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Runs `work` with our engine: "seconds" of the fastest of `repeats`, "gemm_seconds" that its
    products need, "overhead_seconds" of the shrunk model, "profile" in shares, "kv" waste, and
    "steps". torch's threads are those of this process."""
    loaded, prompts, params = _prepared(work)

    def traced(block_size: int) -> Any:
        llm = LLM(loaded, trace=True, block_size=block_size, **settings)
        llm.generate(prompts, params)
        return llm.trace

    sizes = kv_waste.BLOCK_SIZES[: len(kv_waste.BLOCK_SIZES) if work.name == "mixed" else 1]
    traces = {size: traced(size) for size in sizes}
    shapes = gemm.shapes_of(traces[sizes[0]])
    ways = gemm.ways_of(LLM(loaded, **settings))
    return {
        "steps": sum(shapes.values()),
        "seconds": _least(loaded, settings, prompts, params, repeats),
        "gemm_seconds": gemm.seconds_needed(
            ways, loaded.model.dtype, shapes, repeats + 1, time.perf_counter
        ),
        "overhead_seconds": _least(
            overhead.shrunk(loaded), settings, overhead.narrow_prompts(work.prompts), params,
            repeats,
        ),
        "profile": overhead.profile(LLM(loaded, **settings), prompts, params),
        "kv": [kv_waste.waste_of(trace) for trace in traces.values()],
    }  # fmt: skip


def _prepared(work: Work) -> tuple[LoadedModel, Any, Any]:
    loaded = without_tokenizer(load(folder_of(work.model), work.dtype, "cpu"))
    job = {"prompts": work.prompts, "max_tokens": work.max_tokens}
    return loaded, prompts_of(job), params_of(job)


def _least(
    loaded: LoadedModel, settings: dict[str, Any], prompts: Any, params: Any, repeats: int
) -> float:
    """Seconds of the fastest run, each with a fresh engine."""
    times = []
    for _ in range(repeats):
        llm = LLM(loaded, **settings)
        began = time.perf_counter()
        llm.generate(prompts, params)
        times.append(time.perf_counter() - began)
    return min(times)
