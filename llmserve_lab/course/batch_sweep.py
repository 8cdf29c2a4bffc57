"""Decode steps of several batch sizes, measured in turn on the real engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.checks import require_count

if TYPE_CHECKING:
    from llmserve_lab.engine.llm import LLM

ROUNDS = 4
BLOCK_SIZE = 16
BURST = 4  # steps of one engine before the next has its turn; the first of them is not kept


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """Full decode steps of `batch_size` requests. seconds: median of a step. context: tokens that
    each request holds after one more step; num_bytes, flops: what that one moved and computed."""

    batch_size: int
    context: int
    seconds: float
    num_bytes: int
    flops: int
    steps: int

    @property
    def tpot_ms(self) -> float:
        """Time per output token of each request: a step makes one token for each."""
        return 1000 * self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Of all requests together."""
        return self.batch_size / self.seconds

    def __str__(self) -> str:
        return (
            f"batch {self.batch_size:>3}: {self.tpot_ms:6.2f} ms a step, "
            f"{1 / self.seconds:4.0f} tokens/s a user, {self.tokens_per_second:5.0f} in all"
        )


def measure_batches(
    model: Any, sizes: Sequence[int], context: int, rounds: int = ROUNDS
) -> list[BatchPoint]:
    """Time the decode steps of a batch of each size, whose requests hold `context` prompt tokens
    and a few more. The sizes take turns, so that a slow moment does not hit one of them alone.

    model: what `load` returned.

    Raises:
        ValueError, TypeError: no sizes, one that is no batch, or a context that does not fit.
    """
    if not sizes:
        raise ValueError("measure_batches needs at least one batch size.")
    for size in sizes:
        require_count("a batch size", size, at_least=1)
    require_count("rounds", rounds, at_least=1)
    engines = [_decoding(model, size, context, rounds * BURST + 1) for size in sizes]
    kept: list[list[float]] = [[] for _ in sizes]
    for _ in range(rounds):
        for llm, times in zip(engines, kept, strict=True):
            times += _burst(llm)
    return [_point(*each) for each in zip(engines, sizes, kept, strict=True)]


def _decoding(model: Any, size: int, context: int, tokens: int) -> LLM:
    """An engine that has read the prompts of `size` requests, all in one step so that they stay
    equally long, and has `tokens` of each still to make."""
    from llmserve_lab import LLM, SamplingParams
    from llmserve_lab.course.experiments import held_out_prompts

    blocks = size * -(-(context + 1 + tokens) // BLOCK_SIZE)
    llm = LLM(
        model, max_num_seqs=size, max_num_batched_tokens=size * context, block_size=BLOCK_SIZE,
        num_blocks=blocks, trace=True,
    )  # fmt: skip
    params = SamplingParams(temperature=0.0, max_tokens=1 + tokens, ignore_eos=True)
    for prompt in held_out_prompts(model.tokenizer, size, context):
        llm.add_request(prompt, params)
    llm.step()
    return llm


def _burst(llm: LLM) -> list[float]:
    """Seconds of the steps of one turn, without the first: it fetches again what the other engines
    drove out of the processor's caches."""
    for _ in range(BURST):
        llm.step()
    return [step.seconds for step in llm.trace.steps[1 - BURST :]]


def _point(llm: LLM, size: int, times: list[float]) -> BatchPoint:
    llm.reset_metrics()
    llm.step()
    last, counted = llm.trace[-1], llm.metrics
    context = last.scheduled[0].start + 1
    return BatchPoint(
        size, context, median(times), int(counted.num_bytes), int(counted.flops), len(times)
    )
