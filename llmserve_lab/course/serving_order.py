"""Requests that are all there at the start, served in one order or another; time in steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_lab.engine.trace import Trace


@dataclass(frozen=True, slots=True)
class Served:
    """waits: steps from the start to each request's last token, in ascending order."""

    steps: int
    tokens: int
    waits: tuple[int, ...]
    trace: Trace

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / self.steps

    @property
    def median_wait(self) -> float:
        return median(self.waits)

    def __str__(self) -> str:
        return (
            f"{self.steps:>3} steps of {self.tokens_per_step:.1f} tokens, "
            f"half done after {self.median_wait:.0f}"
        )


def serve_at_once(
    model: Any,
    prompts: Sequence[Any],
    lengths: Sequence[int],
    slots: int,
    shortest_first: bool = False,
) -> Served:
    """Serve `prompts`, `slots` at a time, in the order given or the shortest answer first.

    model: what `load` returned. lengths: output tokens of each, made in full.
    """
    from llmserve_lab import LLM, PriorityScheduler, SamplingParams

    scheduler = PriorityScheduler() if shortest_first else None
    llm = LLM(model, max_num_seqs=slots, scheduler=scheduler, trace=True)
    params = [SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for n in lengths]
    llm.generate(list(prompts), params, priority=list(lengths) if shortest_first else None)
    waits = sorted(step.step + 1 for step in llm.trace for _ in step.finished)
    tokens = sum(len(step.sampled) for step in llm.trace)
    return Served(len(llm.trace), tokens, tuple(waits), llm.trace)
