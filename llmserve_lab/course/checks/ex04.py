"""Exercise 04: from logits to tokens, the decoding loop, and milliseconds from bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.course.checks import ex04_cases as cases
from llmserve_lab.course.checks import ex04_mutants as mutants
from llmserve_lab.course.checks.grader import Grader
from llmserve_lab.course.checks.result import Number
from llmserve_lab.course.checks.table_model import TableModel
from llmserve_lab.course.checks.tensor import Tensor
from llmserve_lab.course.checks.tokens import Tokens

if TYPE_CHECKING:
    import torch


def greedy(logits: torch.Tensor) -> int:
    return int(logits.argmax())


def probabilities(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    return (logits / temperature).softmax(dim=-1)


def keep(p: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    import torch

    order = p.argsort(descending=True)
    order = order[: top_k or len(p)]
    ranked = p[order] / p[order].sum()
    count = int((ranked.cumsum(dim=0) - ranked < top_p).sum())
    kept = torch.zeros_like(p)
    kept[order[:count]] = p[order[:count]]
    return kept / kept.sum()


def draw(p: torch.Tensor, u: float) -> int:
    return int((p.double().cumsum(dim=0) <= u).sum())


def decode(next_logits: TableModel, prompt: list[int], max_tokens: int, eos: int) -> list[int]:
    written: list[int] = []
    while len(written) < max_tokens:
        written.append(greedy(next_logits(prompt + written)))
        if written[-1] == eos:
            break
    return written


def ms_per_token(
    weight_bytes: float, kv_bytes: float, context: int, batch: int, bandwidth: float
) -> float:
    return 1000 * (weight_bytes + batch * context * kv_bytes) / bandwidth


TOKEN = Number("(a token)", whole=True)
GRADERS = (
    Grader(
        key="04.1",
        name="ex04_greedy",
        reference=greedy,
        shape=TOKEN,
        cases=cases.one_row,
        hints=(
            "Greedy looks for the largest logit. Its value, or its place?",
            "argmax gives the place, as a tensor.",
            "int(logits.argmax()).",
        ),
        mutants=mutants.GREEDY,
    ),
    Grader(
        key="04.2",
        name="ex04_probabilities",
        reference=probabilities,
        shape=Tensor(),
        cases=cases.temperatures,
        hints=(
            "A low temperature makes the likeliest token likelier still. Multiply or divide?",
            "Divide the logits by the temperature, then the softmax; torch's does not overflow.",
            "(logits / temperature).softmax(dim=-1).",
        ),
        mutants=mutants.PROBABILITIES,
    ),
    Grader(
        key="04.3",
        name="ex04_keep",
        reference=keep,
        shape=Tensor(),
        cases=cases.filters,
        hints=(
            "For top_p: a token stays if those before it have not reached top_p yet.",
            "The sum of those before a token is the running sum minus its own probability. Count "
            "the tokens for which that is below top_p.",
            "count = int((ranked.cumsum(dim=0) - ranked < top_p).sum()); keep order[:count], put "
            "their p into zeros, divide by the sum.",
        ),
        mutants=mutants.KEEP,
    ),
    Grader(
        key="04.4",
        name="ex04_draw",
        reference=draw,
        shape=TOKEN,
        cases=cases.draws,
        hints=(
            "Lay the probabilities end to end on a line from 0 to 1. On whose part does u lie?",
            "The token is the first whose running sum is larger than u.",
            "Count the running sums that are at most u: int((p.cumsum(dim=0) <= u).sum()).",
        ),
        mutants=mutants.DRAW,
    ),
    Grader(
        key="04.5",
        name="ex04_decode",
        reference=decode,
        shape=Tokens(),
        cases=cases.loops,
        hints=(
            "What must the model see for the second new token that it did not see for the first?",
            "Call next_logits with prompt and new tokens together; stop after max_tokens, or after "
            "an eos, which is part of the result.",
            "written = []; while len(written) < max_tokens: append greedy(next_logits(prompt + "
            "written)); break if the last is eos.",
        ),
        mutants=mutants.DECODE,
    ),
    Grader(
        key="04.6",
        name="ex04_ms_per_token",
        reference=ms_per_token,
        shape=Number("ms"),
        cases=cases.machines,
        hints=(
            "A step reads two things. Which of them once for all requests, which once for each?",
            "Bytes: the weights once, and the cache of context tokens for each request. The step "
            "lasts bytes / bandwidth, and gives each request one token.",
            "1000 * (weight_bytes + batch * context * kv_bytes) / bandwidth.",
        ),
        mutants=mutants.MS_PER_TOKEN,
    ),
)
