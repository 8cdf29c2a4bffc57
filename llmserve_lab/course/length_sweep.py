"""What a whole answer costs at several lengths, with a KV cache and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.checks import require_count

if TYPE_CHECKING:
    from llmserve_lab.engine.scheduler import Scheduler
    from llmserve_lab.engine.trace import Trace
    from llmserve_lab.engine.work import ModelWork

WARM_UP_TOKENS = 4


@dataclass(frozen=True, slots=True)
class LengthPoint:
    """One answer of `length` tokens after a prompt of one token.

    computed: tokens that went through the model. pairs: (query, key) pairs of attention in one
    layer. linear, attention: operations of the products with weights; of queries with keys and
    probabilities with values. seconds: in steps.
    """

    length: int
    computed: int
    pairs: int
    linear: int
    attention: int
    seconds: float

    @property
    def flops(self) -> int:
        """All operations."""
        return self.linear + self.attention


def measure_lengths(
    model: Any, lengths: Sequence[int], scheduler: Callable[[], Scheduler], token: int = 1
) -> list[LengthPoint]:
    """Generate an answer of each length, one request at a time, on an engine of its own.

    model: what `load` returned. scheduler: makes the engine's, such as the class `Scheduler`.
    token: the prompt.
    """
    for length in lengths:
        require_count("a length", length, at_least=1)
    _generate(model, scheduler(), WARM_UP_TOKENS, token)
    return [_point(length, _generate(model, scheduler(), length, token)) for length in lengths]


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The power of the length that the values grow with: the slope of the straight line through
    their logarithms, by least squares.

    Raises:
        ValueError: fewer than two different lengths, or a value that is not above 0.
    """
    import numpy as np

    if len(set(lengths)) < 2 or not all(value > 0 for value in (*lengths, *values)):
        raise ValueError("An exponent needs values above 0 at two lengths or more.")
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def _generate(model: Any, scheduler: Scheduler, length: int, token: int) -> Any:
    from llmserve_lab import LLM, SamplingParams

    llm = LLM(model, scheduler=scheduler, trace=True)
    params = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
    llm.generate({"prompt_token_ids": [token]}, params)
    return llm


def _point(length: int, llm: Any) -> LengthPoint:
    from llmserve_lab.engine.work import ModelWork

    work: ModelWork = ModelWork.of(llm.model, kv_bytes=0)
    computed, pairs = _counted(llm.trace)
    return LengthPoint(
        length=length,
        computed=computed,
        pairs=pairs,
        linear=work.linear_flops(computed, samples=len(llm.trace)),
        attention=work.attention_flops(pairs),
        seconds=llm.metrics.seconds,
    )


def _counted(trace: Trace) -> tuple[int, int]:
    """Tokens, and (query, key) pairs: each token meets itself and all before it."""
    computed = pairs = 0
    for item in (item for step in trace for item in step.scheduled):
        computed += item.num_tokens
        pairs += sum(range(item.start + 1, item.start + item.num_tokens + 1))
    return computed, pairs
