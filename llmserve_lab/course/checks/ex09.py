"""Exercise 09: what a step with drafts brings, judging drafts, guessing from the text, and which
strategy helps a server most.

The last answer is judged by what it makes of servers that run on a virtual clock.
"""

from __future__ import annotations

import random
from typing import Any

from llmserve_lab.course.bench import Bench
from llmserve_lab.course.checks import ex09_mutants as mutants
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.name import Name
from llmserve_lab.course.checks.result import Maybe, Number
from llmserve_lab.course.checks.tokens import Tokens
from llmserve_lab.course.strategies import QUANTIZED, STRATEGIES

RANDOM_CASES, RANDOM_BENCHES = 6, 2
VOCABULARY = 9  # so small that texts repeat
LEAST = 0.05  # of a measure: less is no help
MEASURES = ("first", "pace", "throughput", "memory")


def share(none: dict[str, float], run: dict[str, float], measure: str) -> float:
    return run[measure] / none[measure]


def tokens_per_step(alpha: float, count: int) -> float:
    total, chance = 0.0, 1.0
    for _ in range(count + 1):
        total += chance
        chance *= alpha
    return total


def judge(drafts: list[int], choices: list[int]) -> list[int]:
    kept = []
    for draft, choice in zip(drafts, choices[:-1], strict=True):
        kept.append(choice)
        if draft != choice:
            return kept
    return [*kept, choices[-1]]


def propose(token_ids: list[int], count: int) -> list[int]:
    last = token_ids[-2:]
    for start in range(len(token_ids) - 3, -1, -1):
        if token_ids[start : start + 2] == last:
            return token_ids[start + 2 : start + 2 + count]
    return []


def choose(bench: Bench, measure: str, exact: bool) -> str | None:
    none = bench.run()[measure]
    best, most = None, LEAST
    for strategy in STRATEGIES:
        if exact and strategy == QUANTIZED:
            continue
        change = bench.run(strategy)[measure] / none - 1
        gain = change if measure == "throughput" else -change
        if gain > most:
            best, most = strategy, gain
    return best


def _shares(rng: random.Random) -> list[Arguments]:
    fixed: list[tuple[float, float, str]] = [(100, 50, "steps"), (8, 10, "bytes"), (4, 4, "steps")]
    drawn = [
        (rng.randint(50, 500), rng.randint(10, 700), rng.choice(["steps", "tokens"]))
        for _ in range(RANDOM_CASES)
    ]
    return [
        {"none": {measure: before, "other": 3}, "run": {measure: after, "other": 7},
         "measure": measure}
        for before, after, measure in fixed + drawn
    ]  # fmt: skip


def _chances(rng: random.Random) -> list[Arguments]:
    fixed = [(0.5, 1), (0.5, 2), (0.0, 3), (1.0, 4), (0.8, 0)]
    drawn = [(round(rng.uniform(0.1, 0.95), 3), rng.randint(1, 9)) for _ in range(RANDOM_CASES)]
    return [{"alpha": alpha, "count": count} for alpha, count in fixed + drawn]


def _judgements(rng: random.Random) -> list[Arguments]:
    fixed: list[tuple[list[int], list[int]]] = [
        ([5, 6], [5, 6, 7]),  # all right
        ([5, 6], [5, 4, 7]),  # the second is wrong
        ([5, 6, 7], [4, 6, 7, 8]),  # the first is wrong, the others happen to be equal
        ([], [3]),
        ([5, 5], [5, 4, 5]),
    ]
    drawn = []
    for _ in range(RANDOM_CASES):
        choices = [rng.randrange(VOCABULARY) for _ in range(rng.randint(2, 7))]
        drafts = [c if rng.random() < 0.7 else (c + 1) % VOCABULARY for c in choices[:-1]]
        drawn.append((drafts, choices))
    return [{"drafts": drafts, "choices": choices} for drafts, choices in fixed + drawn]


def _texts(rng: random.Random) -> list[Arguments]:
    fixed: list[tuple[list[int], int]] = [
        ([1, 2, 3, 4, 1, 2], 2),
        ([1, 2, 7, 1, 2, 8, 9, 1, 2], 3),  # the latest place counts
        ([1, 2, 3, 4], 2),  # seen nowhere
        ([1, 1, 1], 3),  # overlaps itself
        ([4], 2),
        ([1, 2], 2),
        ([2, 3, 5, 2, 3], 9),  # fewer follow than asked for
    ]
    drawn = [
        ([rng.randrange(3) for _ in range(rng.randint(3, 14))], rng.randint(1, 5))
        for _ in range(RANDOM_CASES)
    ]
    return [{"token_ids": text, "count": count} for text, count in fixed + drawn]


def _servers(rng: random.Random) -> list[Arguments]:
    one_user = Bench(shared=0, own=64, answers=(20, 40), places=1, count=3)
    crowd = Bench(shared=0, own=48, answers=(4, 96), places=6, count=14, alpha=0.2)
    questions = Bench(shared=3000, own=32, answers=(8, 8), places=4, count=12)
    fixed: list[tuple[Bench, str, bool]] = [
        (one_user, "pace", True),
        (one_user, "pace", False),
        (crowd, "throughput", True),
        (questions, "first", True),
        (questions, "memory", False),
        (one_user, "memory", True),  # nothing helps
    ]
    drawn = [(_bench(rng), rng.choice(MEASURES), rng.random() < 0.5) for _ in range(RANDOM_BENCHES)]
    return [{"bench": b, "measure": measure, "exact": exact} for b, measure, exact in fixed + drawn]


def _bench(rng: random.Random) -> Bench:
    return Bench(
        shared=rng.choice([0, 512, 2048]),
        own=rng.randint(16, 96),
        answers=(8, rng.choice([12, 24, 48])),
        places=rng.choice([1, 4, 8]),
        count=8,
        alpha=round(rng.uniform(0.3, 0.9), 2),
        seed=rng.randrange(1000),
    )


def _graders() -> tuple[Any, ...]:
    return (
        Grader(
            key="09.1",
            name="ex09_share",
            reference=share,
            shape=Number(),
            cases=_shares,
            hints=(
                "What is left of the measure, as a share of what it was?",
                "Below 1 the strategy saves, above 1 it costs.",
                "run[measure] / none[measure].",
            ),
            mutants=mutants.SHARE,
        ),
        Grader(
            key="09.2",
            name="ex09_tokens_per_step",
            reference=tokens_per_step,
            shape=Number("tokens"),
            cases=_chances,
            hints=(
                "One token comes for certain. When does the first draft add one, when the second?",
                "Draft number i counts if it and all before it are right: alpha to the power of i.",
                "In each round add chance to total, then multiply chance by alpha.",
            ),
            mutants=mutants.TOKENS,
        ),
        Grader(
            key="09.3",
            name="ex09_judge",
            reference=judge,
            shape=Tokens(),
            cases=_judgements,
            hints=(
                "Every token of the result is one of the model's own choices. How many of them?",
                "Go along both lists. Keep each choice; stop after the first that its draft is "
                "not. If none differs, the last choice comes on top.",
                "If draft != choice: return kept, which ends with the model's choice. After the "
                "loop: kept + [choices[-1]].",
            ),
            mutants=mutants.JUDGE,
        ),
        Grader(
            key="09.4",
            name="ex09_propose",
            reference=propose,
            shape=Tokens(),
            cases=_texts,
            hints=(
                "Look for the last two tokens further left, from the end to the beginning.",
                "The latest place starts at len(token_ids) - 3 at most: something must follow it.",
                "for start in range(len(token_ids) - 3, -1, -1): if token_ids[start:start + 2] == "
                "token_ids[-2:]: return token_ids[start + 2:start + 2 + count]. At the end: [].",
            ),
            mutants=mutants.PROPOSE,
        ),
        Grader(
            key="09.5",
            name="ex09_choose",
            reference=choose,
            shape=Maybe(Name()),
            cases=_servers,
            hints=(
                "Run the server without any strategy, then with each one, and compare.",
                "For throughput more is better, for all others less. A change of at most 5% is no "
                "help. With exact=True leave quantization out.",
                "gain = run / none - 1 for throughput, else 1 - run / none. Keep the strategy with "
                "the largest gain above 0.05; start with None.",
            ),
            mutants=mutants.CHOOSE,
        ),
    )


GRADERS = _graders()
