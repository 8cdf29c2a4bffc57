"""The strategies of chapter 09, each switched on alone or with others, on one set of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Any

from llmserve_lab.course.experiments import MIB, held_out_prompts

CONTINUOUS, REUSE = "continuous batching", "KV cache reuse"
QUANTIZED, SPECULATIVE = "quantization", "speculative decoding"
STRATEGIES = (CONTINUOUS, REUSE, QUANTIZED, SPECULATIVE)
NOTHING, ALL = "none", "all four"
PLACES = 4  # requests in a batch
DRAFTS = 4
WARM_UP_TOKENS = 3


@dataclass(frozen=True, slots=True)
class StrategyRun:
    """What one run of the requests took. num_bytes: weights, keys and values that the steps had to
    move, a draft model's included. kv_bytes: the most that the target's KV cache held.
    latency: median seconds from arrival to the last token; first: to the first one."""

    name: str
    steps: int
    computed_tokens: int
    num_bytes: float
    kv_bytes: float
    accepted_tokens: int
    proposed_tokens: int
    output_tokens: int
    seconds: float
    latency: float
    first: float
    texts: tuple[tuple[int, ...], ...]
    trace: Any

    @property
    def tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.name:20}{self.steps:4} steps{self.computed_tokens:6,} tokens"
            f"{self.num_bytes / MIB:6,.0f} MiB moved{self.kv_bytes / MIB:6.2f} MiB KV"
        )

    @property
    def times(self) -> str:
        """What the clock says."""
        return (
            f"{self.name:20}{self.tokens_per_second:6.0f} tokens/s, answer {self.latency:5.2f} s, "
            f"first token {self.first:5.2f} s"
        )


def shared_prefix_requests(
    tokenizer: Any, count: int, shared: int, own: int, seed: int = 0
) -> list[dict[str, list[int]]]:
    """Prompts of `shared` equal tokens, as of instructions, and `own` tokens of their own."""
    (first,) = held_out_prompts(tokenizer, 1, shared, seed)
    tails = held_out_prompts(tokenizer, count, own, seed + 1)
    return [
        {"prompt_token_ids": first["prompt_token_ids"] + tail["prompt_token_ids"]} for tail in tails
    ]


def greedy_lengths(lengths: Sequence[int]) -> list[Any]:
    """Settings for outputs of these lengths, the likeliest token each time."""
    from llmserve_lab import SamplingParams

    return [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]


def same_tokens(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with in common."""
    pairs = zip(one, other, strict=False)
    shared = min(len(one), len(other))
    return next((place for place, (a, b) in enumerate(pairs) if a != b), shared)


def engine_with(*names: str, places: int = PLACES, drafts: int = DRAFTS, **settings: Any) -> Any:
    """An engine with these strategies switched on and the others off.

    Raises:
        ValueError: there is no such strategy.
    """
    from llmserve_lab import LLM, Scheduler, StaticBatchingScheduler

    unknown = set(names) - set(STRATEGIES)
    if unknown:
        raise ValueError(f"There is no {unknown.pop()!r}; there are {', '.join(STRATEGIES)}.")
    static = StaticBatchingScheduler(places)
    return LLM(
        _model("int8" if QUANTIZED in names else "auto"),
        max_num_seqs=places,
        scheduler=Scheduler() if CONTINUOUS in names else static,
        enable_prefix_caching=REUSE in names,
        kv_cache_dtype="int8" if QUANTIZED in names else "auto",
        draft="lab-draft" if SPECULATIVE in names else None,
        num_draft_tokens=drafts if SPECULATIVE in names else None,
        trace=True,
        **settings,
    )


def serve_with(
    names: Sequence[str], prompts: Sequence[Any], params: Sequence[Any], label: str, **settings: Any
) -> StrategyRun:
    """Serve the requests, all there from the start, with the strategies of these names. The engine
    is warmed up first, with prompts that share nothing with these."""
    llm = engine_with(*names, **settings)
    warm = held_out_prompts(llm.tokenizer, settings.get("places", PLACES), 24, seed=99)
    llm.generate(warm, greedy_lengths([WARM_UP_TOKENS] * len(warm)))
    llm.reset_metrics()
    skipped = len(llm.trace)
    outputs = llm.generate(prompts, params)
    return _summary(label, llm, outputs, skipped)


def _summary(label: str, llm: Any, outputs: Sequence[Any], skipped: int) -> StrategyRun:
    from llmserve_lab import Trace

    found = llm.metrics
    return StrategyRun(
        name=label,
        steps=found.steps,
        computed_tokens=found.computed_tokens,
        num_bytes=found.num_bytes + found.draft_bytes,
        kv_bytes=found.peak_kv_blocks_used * llm.capacity.block_bytes,
        accepted_tokens=found.accepted_tokens,
        proposed_tokens=found.proposed_tokens,
        output_tokens=found.generation_tokens,
        seconds=found.seconds,
        latency=median(output.metrics.e2e for output in outputs),
        first=median(output.metrics.ttft for output in outputs),
        texts=tuple(output.outputs[0].token_ids for output in outputs),
        trace=Trace([replace(s, step=i) for i, s in enumerate(llm.trace.steps[skipped:])]),
    )


@lru_cache(maxsize=2)
def _model(linear: str) -> Any:
    """In float32: there greedy tokens are the same in every batch, and int8 is a quarter."""
    from llmserve_lab import load

    return load("lab-target", "float32", linear=linear)
