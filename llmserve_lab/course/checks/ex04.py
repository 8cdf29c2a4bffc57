"""Exercise 04: from logits to tokens, the decoding loop, and milliseconds from bandwidth."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from llmserve_lab.course.checks import ex04_mutants as mutants
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Number
from llmserve_lab.course.checks.table_model import TableModel
from llmserve_lab.course.checks.tensor import Tensor
from llmserve_lab.course.checks.tokens import Tokens

if TYPE_CHECKING:
    import torch

RANDOM_CASES = 6
VOCABULARY = 6
ROWS = 7  # of a table model
EOS = 0


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


def _logits(rng: random.Random, scale: float = 3.0) -> torch.Tensor:
    """Different from each other by a tenth or more, so that no order hangs on rounding."""
    import torch

    steps = rng.sample(range(-30, 31), VOCABULARY)
    return torch.tensor([scale * step / 30 for step in steps])


def _one_row(rng: random.Random) -> list[Arguments]:
    import torch

    fixed = [torch.tensor([0.5, 2.0, 1.0]), torch.tensor([-1.0, -3.0, -2.0])]
    tie = torch.tensor([1.0, 4.0, 4.0])  # equally likely: the first
    return [{"logits": each} for each in (*fixed, tie, *(_logits(rng) for _ in range(5)))]


def _temperatures(rng: random.Random) -> list[Arguments]:
    import torch

    fixed = [
        {"logits": torch.tensor([1.0, 2.0]), "temperature": 1.0},
        {"logits": torch.tensor([0.0, 2.0, 1.0]), "temperature": 0.5},
        {"logits": torch.tensor([100.0, 400.0, 300.0]), "temperature": 2.0},  # exp() overflows
    ]
    drawn = [
        {"logits": _logits(rng), "temperature": round(rng.uniform(0.3, 2), 2)}
        for _ in range(RANDOM_CASES)
    ]
    return [*fixed, *drawn]


def _filters(rng: random.Random) -> list[Arguments]:
    import torch

    p = torch.tensor([0.1, 0.5, 0.15, 0.25])
    settings = [(2, 1.0), (0, 0.6), (0, 0.3), (0, 1.0), (3, 0.8), (1, 0.9)]
    fixed = [{"p": p, "top_k": top_k, "top_p": top_p} for top_k, top_p in settings]
    drawn = [
        {
            "p": _logits(rng).softmax(dim=-1),
            "top_k": rng.randint(0, VOCABULARY),
            "top_p": round(rng.uniform(0.2, 0.95), 3),
        }
        for _ in range(RANDOM_CASES)
    ]
    return [*fixed, *drawn]


def _draws(rng: random.Random) -> list[Arguments]:
    import torch

    p = torch.tensor([0.25, 0.0, 0.5, 0.25])
    fixed = [{"p": p, "u": u} for u in (0.1, 0.25, 0.3, 0.74, 0.75, 0.99)]
    first = {"p": torch.tensor([0.0, 0.0, 1.0]), "u": 0.0}  # the first two are impossible
    drawn = [
        {"p": _logits(rng).softmax(dim=-1), "u": round(rng.random() * 0.999, 4)}
        for _ in range(2 * RANDOM_CASES)
    ]
    return [*fixed, first, *drawn]


def _loops(rng: random.Random) -> list[Arguments]:
    never, often = _table(rng, ending=False), _table(rng, ending=True)
    at_once = TableModel(((5.0, 1.0, 0.0),))
    fixed = [(never, [1], 3), (at_once, [2], 4), (never, [2, 3, 1], 8), (often, [EOS, 4], 30)]
    drawn = [
        (_table(rng, ending=rng.random() < 0.5), _prompt(rng), rng.randint(1, 12))
        for _ in range(RANDOM_CASES)
    ]
    return [
        {"next_logits": model, "prompt": prompt, "max_tokens": most, "eos": EOS}
        for model, prompt, most in (*fixed, *drawn)
    ]


def _table(rng: random.Random, ending: bool) -> TableModel:
    """In one row the text ends, if it is to end at all; each other row favours another token."""
    likeliest = [1 + row % (VOCABULARY - 1) for row in range(ROWS)]
    if ending:
        likeliest[rng.randrange(ROWS)] = EOS
    rng.shuffle(likeliest)
    return TableModel(
        tuple(
            tuple(
                9.0 if token == best else round(rng.uniform(-2, 2), 1)
                for token in range(VOCABULARY)
            )
            for best in likeliest
        )
    )


def _prompt(rng: random.Random) -> list[int]:
    return [rng.randrange(1, VOCABULARY) for _ in range(rng.randint(1, 4))]


def _machines(rng: random.Random) -> list[Arguments]:
    names = ("weight_bytes", "kv_bytes", "context", "batch", "bandwidth")
    fixed = [
        (1000, 10, 5, 1, 1000),
        (1000, 10, 5, 4, 500),
        (14_000_000_000, 524_288, 1024, 1, 2e12),
    ]
    drawn = [
        (
            rng.randint(1, 70) * 10**9,
            rng.randint(10, 900) * 1024,
            rng.randint(100, 9000),
            rng.randint(2, 64),
            rng.randint(3, 80) * 1e11,
        )
        for _ in range(RANDOM_CASES)
    ]
    return [dict(zip(names, values, strict=True)) for values in (*fixed, *drawn)]


TOKEN = Number("(a token)", whole=True)
GRADERS = (
    Grader(
        key="04.1",
        name="ex04_greedy",
        reference=greedy,
        shape=TOKEN,
        cases=_one_row,
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
        cases=_temperatures,
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
        cases=_filters,
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
        cases=_draws,
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
        cases=_loops,
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
        cases=_machines,
        hints=(
            "A step reads two things. Which of them once for all requests, which once for each?",
            "Bytes: the weights once, and the cache of context tokens for each request. The step "
            "lasts bytes / bandwidth, and gives each request one token.",
            "1000 * (weight_bytes + batch * context * kv_bytes) / bandwidth.",
        ),
        mutants=mutants.MS_PER_TOKEN,
    ),
)
