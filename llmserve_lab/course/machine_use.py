"""How far real steps and products use the machine: operations and bytes, and the time taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.checks import require_count

if TYPE_CHECKING:
    import torch

DECODE_STEPS = 10  # of which the median is taken
PROMPT_TOKENS = 32  # of the requests that decode
REPEATS = 4


@dataclass(frozen=True, slots=True)
class Use:
    """One kind of work. kind: "prefill", "decode" or "product". size: tokens, requests or vectors.
    flops, num_bytes: what it has to do at least. seconds: what it took."""

    kind: str
    size: int
    flops: float
    num_bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations for each byte moved."""
        return self.flops / self.num_bytes

    @property
    def rate(self) -> float:
        """Operations per second that were reached."""
        return self.flops / self.seconds

    def __str__(self) -> str:
        unit = {"prefill": "tokens", "decode": "requests", "product": "vectors"}[self.kind]
        return (
            f"{self.kind:>7}, {self.size:>3} {unit:<8} {self.intensity:6.1f} operations/byte, "
            f"{self.rate / 1e9:6.1f} GFLOP/s, {1000 * self.seconds:6.1f} ms"
        )


def product_uses(matrix: torch.Tensor, counts: Sequence[int]) -> list[Use]:
    """The matrix times 1, 2, ... vectors at a time, the shortest of several runs of each. matrix:
    (rows, columns)."""
    import torch

    from llmserve_lab.engine.peak import best_rate

    rows, columns = matrix.shape
    uses = []
    for count in counts:
        require_count("a number of vectors", count, at_least=1)
        vectors = torch.randn(count, columns, dtype=matrix.dtype, device=matrix.device)
        run = partial(torch.nn.functional.linear, vectors, matrix)
        moved = matrix.nbytes + count * (rows + columns) * matrix.element_size()
        seconds = 1 / best_rate(run, 1, matrix.device)
        uses.append(Use("product", count, 2 * count * matrix.numel(), moved, seconds))
    return uses


def prefill_uses(model: Any, lengths: Sequence[int]) -> list[Use]:
    """The engine reads one prompt of each length in one step. model: what `load` returned."""
    llm = _engine(model, 1, max(lengths))
    runs = [[_run(llm, 1, length, 1)[0] for _ in range(REPEATS)] for length in lengths]
    return [min(uses, key=lambda use: use.seconds) for uses in runs]


def decode_uses(model: Any, batch_sizes: Sequence[int]) -> list[Use]:
    """The engine decodes for several requests at once: the median of some steps of each batch."""
    llm = _engine(model, max(batch_sizes), max(batch_sizes) * PROMPT_TOKENS)
    found = []
    for batch_size in batch_sizes:
        steps = _run(llm, batch_size, PROMPT_TOKENS, 1 + DECODE_STEPS)[1:]
        seconds = median(step.seconds for step in steps)
        found.append(replace(steps[len(steps) // 2], seconds=seconds))
    return found


def _engine(model: Any, most_requests: int, most_tokens: int) -> Any:
    """An engine that has run, and that takes any of these batches in one step."""
    from llmserve_lab import LLM, SamplingParams

    llm = LLM(model, max_num_seqs=most_requests, max_num_batched_tokens=most_tokens)
    llm.generate("import os", SamplingParams(max_tokens=2))
    return llm


def _run(llm: Any, batch_size: int, length: int, num_tokens: int) -> list[Use]:
    """What each step of one batch used; its first is the prefill."""
    from llmserve_lab import SamplingParams
    from llmserve_lab.course.experiments import held_out_prompts

    require_count("a batch size", batch_size, at_least=1)
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    for prompt in held_out_prompts(llm.tokenizer, count=batch_size, num_tokens=length):
        llm.add_request(prompt, params)
    uses: list[Use] = []
    while llm.has_work:
        llm.reset_metrics()
        llm.step()
        m = llm.metrics
        kind, size = ("decode", batch_size) if uses else ("prefill", batch_size * length)
        uses.append(Use(kind, size, m.flops, m.num_bytes, m.seconds))
    return uses
