"""Chapter 00's one check: how many KV blocks a request holds."""

from __future__ import annotations

import random

from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Number

RANDOM_CASES = 8
BLOCK_SIZES = (1, 4, 8, 16, 32, 128)


def blocks_needed(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


def _cases(rng: random.Random) -> list[Arguments]:
    fixed = [(16, 16), (17, 16), (1, 16), (15, 16), (5, 1), (64, 32)]
    drawn = [(rng.randint(1, 2000), rng.choice(BLOCK_SIZES)) for _ in range(RANDOM_CASES)]
    return [{"num_tokens": tokens, "block_size": size} for tokens, size in fixed + drawn]


GRADERS = (
    Grader(
        key="00.1",
        name="ex00_blocks",
        reference=blocks_needed,
        shape=Number("blocks"),
        cases=_cases,
        hints=(
            "A block that is filled only in part is still a whole block.",
            "Divide and round up. Does 16 tokens in blocks of 16 give 1, and 17 give 2?",
            "math.ceil(num_tokens / block_size), or -(-num_tokens // block_size).",
        ),
        mutants={
            "rounds down": lambda tokens, size: tokens // size,
            "always one more": lambda tokens, size: tokens // size + 1,
            "rounds to the nearest": lambda tokens, size: round(tokens / size),
            "a block per token": lambda tokens, size: tokens,
            "does not round": lambda tokens, size: tokens / size,
        },
    ),
)
