"""What exercise 04's answers are tried on: the simple and the tricky first, then drawn ones."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from llmserve_lab.course.checks.grader import Arguments
from llmserve_lab.course.checks.table_model import TableModel

if TYPE_CHECKING:
    import torch

RANDOM_CASES = 6
VOCABULARY = 6
ROWS = 7  # of a table model
EOS = 0


def _logits(rng: random.Random, scale: float = 3.0) -> torch.Tensor:
    """Different from each other by a tenth or more, so that no order hangs on rounding."""
    import torch

    steps = rng.sample(range(-30, 31), VOCABULARY)
    return torch.tensor([scale * step / 30 for step in steps])


def one_row(rng: random.Random) -> list[Arguments]:
    import torch

    fixed = [torch.tensor([0.5, 2.0, 1.0]), torch.tensor([-1.0, -3.0, -2.0])]
    tie = torch.tensor([1.0, 4.0, 4.0])  # equally likely: the first
    return [{"logits": each} for each in (*fixed, tie, *(_logits(rng) for _ in range(5)))]


def temperatures(rng: random.Random) -> list[Arguments]:
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


def filters(rng: random.Random) -> list[Arguments]:
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


def draws(rng: random.Random) -> list[Arguments]:
    import torch

    p = torch.tensor([0.25, 0.0, 0.5, 0.25])
    fixed = [{"p": p, "u": u} for u in (0.1, 0.25, 0.3, 0.74, 0.75, 0.99)]
    first = {"p": torch.tensor([0.0, 0.0, 1.0]), "u": 0.0}  # the first two are impossible
    drawn = [
        {"p": _logits(rng).softmax(dim=-1), "u": round(rng.random() * 0.999, 4)}
        for _ in range(2 * RANDOM_CASES)
    ]
    return [*fixed, first, *drawn]


def loops(rng: random.Random) -> list[Arguments]:
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


def machines(rng: random.Random) -> list[Arguments]:
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
