"""All limits of one workload, in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.comparison.contestants import OURS
from benchmarks.comparison.models import folder_of
from benchmarks.comparison.workloads import Work
from benchmarks.limits import gemm, kv_waste, overhead, prefixes, reading
from benchmarks.peers.ours import params_of, prompts_of, without_tokenizer
from llmserve_lab import LLM
from llmserve_lab.engine.trace import Trace
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
    products need, "reading_seconds" that its keys and values need, "overhead_seconds" of a narrow
    model, "profile" in shares, and "steps". torch's threads are those of this process."""
    loaded, prompts, params = _prepared(work)
    narrow, narrow_prompts = overhead.shrunk(loaded), overhead.narrow_prompts(work.prompts)
    llm = LLM(loaded, **settings)
    trace = _trace(narrow, llm, narrow_prompts, params, settings)
    shapes = gemm.shapes_of(trace)
    dtype = loaded.model.dtype
    return {
        "steps": sum(shapes.values()),
        "seconds": _least(loaded, settings, prompts, params, repeats),
        "gemm_seconds": gemm.seconds_needed(
            gemm.ways_of(llm), dtype, shapes, repeats + 1, time.perf_counter
        ),
        "reading_seconds": reading.bytes_read(loaded.model, trace) / reading.bandwidth(),
        "overhead_seconds": _least(narrow, settings, narrow_prompts, params, repeats),
        "profile": overhead.profile(llm, prompts, params),
    }


def memory_study(work: Work, settings: dict[str, Any]) -> list[dict[str, float]]:
    """`kv_waste.waste_of` the workload's lengths, for each block size."""
    loaded, _, params = _prepared(work)
    narrow, prompts = overhead.shrunk(loaded), overhead.narrow_prompts(work.prompts)
    found = []
    for size in kv_waste.BLOCK_SIZES:
        sized = settings | {"block_size": size}
        trace = _trace(narrow, LLM(loaded, **sized), prompts, params, sized)
        found.append(kv_waste.waste_of(trace))
    return found


def _trace(
    narrow: LoadedModel, llm: LLM, prompts: Any, params: Any, settings: dict[str, Any]
) -> Trace:
    """Of the narrow model in an engine like `llm`, with as many blocks: what is scheduled depends
    on lengths alone."""
    traced = LLM(narrow, trace=True, **settings | {"num_blocks": llm.capacity.num_blocks})
    with one_thread():
        traced.generate(prompts, params)
    return traced.trace


@contextmanager
def one_thread() -> Iterator[None]:
    """For what is counted and not timed: so narrow a model only loses by several threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
