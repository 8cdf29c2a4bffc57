"""Exercise 03: causal attention, the operations of a prefill, the crossover length."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from llmserve_lab.course.checks import ex03_mutants as mutants
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Number, Record
from llmserve_lab.course.checks.tensor import Tensor

if TYPE_CHECKING:
    import torch

RANDOM_CASES = 5
MOST_TOKENS, WIDEST_HEAD = 6, 4
DIGITS = 2  # of the numbers in the cases, so that a message stays readable


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.T / math.sqrt(q.shape[-1])


def causal_weights(s: torch.Tensor) -> torch.Tensor:
    import torch

    m, n = s.shape
    seen = torch.ones(m, n, dtype=torch.bool).tril(diagonal=n - m)
    return s.masked_fill(~seen, -math.inf).softmax(dim=-1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return causal_weights(scores(q, k)) @ v


def prefill_flops(
    n: int, layers: int, hidden: int, kv_width: int, intermediate: int
) -> dict[str, int]:
    projections = 2 * hidden * (hidden + kv_width)
    weights = layers * (projections + 3 * hidden * intermediate)
    return {"linear": 2 * n * weights, "attention": 4 * layers * n * n * hidden}


def crossover(layers: int, hidden: int, kv_width: int, intermediate: int) -> int:
    one = prefill_flops(1, layers, hidden, kv_width, intermediate)
    return one["linear"] // one["attention"] + 1


# (newest tokens m, tokens n, width of q and k, width of v): a whole prefill, a chunk, a decode step
SHAPES = ((2, 2, 2, 2), (1, 3, 2, 2), (2, 4, 3, 2))


def _shapes(rng: random.Random) -> list[tuple[int, int, int, int]]:
    drawn = []
    for _ in range(RANDOM_CASES):
        n = rng.randint(2, MOST_TOKENS)
        drawn.append((rng.randint(1, n), n, rng.randint(2, WIDEST_HEAD), rng.randint(1, 3)))
    return [*SHAPES, *drawn]


def _matrix(rng: random.Random, rows: int, columns: int) -> torch.Tensor:
    import torch

    values = [[round(rng.uniform(-2, 2), DIGITS) for _ in range(columns)] for _ in range(rows)]
    return torch.tensor(values)


def _queries_and_keys(rng: random.Random) -> list[Arguments]:
    return [
        {"q": _matrix(rng, m, width), "k": _matrix(rng, n, width)}
        for m, n, width, _ in _shapes(rng)
    ]


def _scores(rng: random.Random) -> list[Arguments]:
    large = {"s": 100 + 100 * _matrix(rng, 2, 4)}  # exp() of these overflows
    return [*({"s": _matrix(rng, m, n)} for m, n, _, _ in _shapes(rng)), large]


def _heads(rng: random.Random) -> list[Arguments]:
    return [
        {"q": _matrix(rng, m, width), "k": _matrix(rng, n, width), "v": _matrix(rng, n, wide)}
        for m, n, width, wide in _shapes(rng)
    ]


def _models(rng: random.Random) -> list[Arguments]:
    fixed = [
        {"layers": 1, "hidden": 4, "kv_width": 2, "intermediate": 8},
        {"layers": 2, "hidden": 4, "kv_width": 4, "intermediate": 6},
        {"layers": 32, "hidden": 4096, "kv_width": 4096, "intermediate": 11008},
        {"layers": 80, "hidden": 8192, "kv_width": 1024, "intermediate": 28672},
    ]
    drawn = []
    for _ in range(RANDOM_CASES):
        heads = rng.randint(2, 8)
        hidden, kv_width = 16 * heads, 16 * rng.randint(1, heads)
        sizes = {"layers": rng.randint(2, 9), "hidden": hidden, "kv_width": kv_width}
        drawn.append(sizes | {"intermediate": rng.randint(hidden, 4 * hidden)})
    return [*fixed, *drawn]


def _prompts(rng: random.Random) -> list[Arguments]:
    lengths = (1, 3, 1000, 4096)
    models = _models(rng)
    return [
        {"n": lengths[i] if i < len(lengths) else rng.randint(2, 3000)} | model
        for i, model in enumerate(models)
    ]


WHOLE: Any = Number("operations", whole=True)
GRADERS = (
    Grader(
        key="03.1",
        name="ex03_scores",
        reference=scores,
        shape=Tensor(),
        cases=_queries_and_keys,
        hints=(
            "Each query meets each key once. Which product of two matrices does that?",
            "q is (m, d) and k is (n, d): transpose k, and the result is (m, n). Then the root.",
            "q @ k.T, divided by math.sqrt of the last dimension of q.",
        ),
        mutants=mutants.SCORES,
    ),
    Grader(
        key="03.2",
        name="ex03_causal_weights",
        reference=causal_weights,
        shape=Tensor(),
        cases=_scores,
        hints=(
            "What score makes a weight of exactly 0, and which dimension must sum to 1?",
            "Compare the places to get an (m, n) mask. Where the key's place is larger, the score "
            "becomes -infinity, before the softmax over keys.",
            "s.masked_fill(key_places > query_places, -math.inf), then .softmax(dim=-1).",
        ),
        mutants=mutants.CAUSAL_WEIGHTS,
    ),
    Grader(
        key="03.3",
        name="ex03_attention",
        reference=attention,
        shape=Tensor(),
        cases=_heads,
        hints=(
            "The weights are (m, n), the values (n, width). What shape must come out?",
            "A row of the result is the sum of the rows of v, each times its weight.",
            "One matrix product: weights @ v.",
        ),
        mutants=mutants.ATTENTION,
    ),
    Grader(
        key="03.4",
        name="ex03_prefill_flops",
        reference=prefill_flops,
        shape=Record({"linear": WHOLE, "attention": WHOLE}),
        cases=_prompts,
        hints=(
            "A linear layer of (hidden, width) on n tokens is a product of (n, hidden) with it.",
            "Linear: 2 n times the weights of seven matrices. Attention: two products, each of n "
            "rows, n columns, and hidden numbers between them, over all heads.",
            "Linear is 2 * n * layers * (2 hidden^2 + 2 hidden kv_width + 3 hidden intermediate); "
            "attention is 2 * 2 * n * n * hidden * layers.",
        ),
        mutants=mutants.PREFILL_FLOPS,
    ),
    Grader(
        key="03.5",
        name="ex03_crossover",
        reference=crossover,
        shape=Number("tokens", whole=True),
        cases=_models,
        hints=(
            "Linear grows like n, attention like n * n. What remains if you divide both by n?",
            "With the counts for n = 1: attention is more as soon as n is larger than linear "
            "divided by attention. It must be larger, not equal.",
            'one = prefill_flops(1, ...); the answer is one["linear"] // one["attention"] + 1.',
        ),
        mutants=mutants.CROSSOVER,
    ),
)
