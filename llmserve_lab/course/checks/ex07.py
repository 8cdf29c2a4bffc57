"""Exercise 07: a KV cache for one head of attention, and decoding with that of a model."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llmserve_lab.course.checks import ex07_mutants as mutants
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Record
from llmserve_lab.course.checks.tensor import Tensor
from llmserve_lab.course.checks.tokens import Tokens

if TYPE_CHECKING:
    import torch

Cache = dict[str, Any]  # "keys" (n, d), "values" (n, d)

RANDOM_CASES = 5
MOST_TOKENS, WIDEST = 6, 4
DIGITS = 2
VOCABULARY = 50
SEED_STEP = 7  # of the toy model's arithmetic


def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    weights = (keys @ q / math.sqrt(len(q))).softmax(dim=0)
    return weights @ values


def append(cache: Cache, keys: torch.Tensor, values: torch.Tensor) -> Cache:
    import torch

    return {
        "keys": torch.cat([cache["keys"], keys]),
        "values": torch.cat([cache["values"], values]),
    }


def decode_step(x: torch.Tensor, weights: dict[str, Any], cache: Cache) -> dict[str, Any]:
    q, k, v = (weights[name] @ x for name in ("q", "k", "v"))
    cache = append(cache, k[None], v[None])
    return {"output": attend(q, cache["keys"], cache["values"]), **cache}


def decode(xs: torch.Tensor, weights: dict[str, Any]) -> torch.Tensor:
    """Without a cache: what a cached answer must equal."""
    import torch

    q, k, v = (xs @ weights[name].T for name in ("q", "k", "v"))
    seen = torch.ones(len(xs), len(xs), dtype=torch.bool).tril()
    scores = (q @ k.T / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
    return scores.softmax(dim=-1) @ v


@dataclass
class ToyModel:
    """Stands for a model: called with the tokens to compute and the cache, it gives the next token
    and the new cache. It depends on every token in its place, and refuses to compute one twice."""

    allowed: int
    computed: int = field(default=0, compare=False)

    def __call__(self, tokens: list[int], cache: Any) -> tuple[int, Any]:
        if not isinstance(tokens, list) or not tokens:
            raise TypeError(f"step takes a list of the tokens to compute, not {tokens!r:.60}")
        self.computed += len(tokens)
        if self.computed > self.allowed:
            raise RuntimeError(
                f"with a cache {self.allowed} tokens are computed in all; this is more"
            )
        seen = (*(cache or ()), *tokens)
        mixed = sum((SEED_STEP + place) * token for place, token in enumerate(seen))
        return mixed % VOCABULARY, seen

    def __repr__(self) -> str:
        return "<a step function>"


def generate(step: Any, prompt: list[int], max_tokens: int) -> list[int]:
    token, cache = step(list(prompt), None)
    tokens = [token]
    while len(tokens) < max_tokens:
        token, cache = step([token], cache)
        tokens.append(token)
    return tokens


def _matrix(rng: random.Random, rows: int, columns: int) -> torch.Tensor:
    import torch

    values = [[round(rng.uniform(-2, 2), DIGITS) for _ in range(columns)] for _ in range(rows)]
    return torch.tensor(values).reshape(rows, columns)


def _sizes(rng: random.Random) -> list[tuple[int, int]]:
    """(tokens in the cache, width)"""
    drawn = [(rng.randint(1, MOST_TOKENS), rng.randint(2, WIDEST)) for _ in range(RANDOM_CASES)]
    return [(1, 2), (3, 2), (2, 3), *drawn]


def _cache(rng: random.Random, n: int, d: int) -> Cache:
    return {"keys": _matrix(rng, n, d), "values": _matrix(rng, n, d)}


def _weights(rng: random.Random, d: int) -> dict[str, Any]:
    return {name: _matrix(rng, d, d) for name in ("q", "k", "v")}


def _queries(rng: random.Random) -> list[Arguments]:
    return [{"q": _matrix(rng, 1, d)[0], **_cache(rng, n, d)} for n, d in _sizes(rng)]


def _additions(rng: random.Random) -> list[Arguments]:
    cases = []
    for n, d in [(0, 2), *_sizes(rng)]:  # the first: nothing cached yet
        new = rng.randint(1, 3)
        cases.append({"cache": _cache(rng, n, d), **_cache(rng, new, d)})
    return cases


def _steps(rng: random.Random) -> list[Arguments]:
    return [
        {"x": _matrix(rng, 1, d)[0], "weights": _weights(rng, d), "cache": _cache(rng, n, d)}
        for n, d in [(0, 2), *_sizes(rng)]
    ]


def _sequences(rng: random.Random) -> list[Arguments]:
    return [{"xs": _matrix(rng, n, d), "weights": _weights(rng, d)} for n, d in _sizes(rng)]


def _requests(rng: random.Random) -> list[Arguments]:
    cases = []
    for n, max_tokens in [(3, 2), (1, 4), (4, 1), *((rng.randint(1, 8), 5) for _ in range(5))]:
        prompt = [rng.randrange(1, VOCABULARY) for _ in range(n)]
        step = ToyModel(allowed=n + max_tokens - 1)
        cases.append({"step": step, "prompt": prompt, "max_tokens": max_tokens})
    return cases


CACHE = {"keys": Tensor(), "values": Tensor()}
GRADERS = (
    Grader(
        key="07.1",
        name="ex07_attend",
        reference=attend,
        shape=Tensor(),
        cases=_queries,
        hints=(
            "One query meets every key. How many scores come out, and what are they scaled by?",
            "keys @ q gives a score for each token; divide by the root of the width, softmax.",
            "weights = (keys @ q / math.sqrt(len(q))).softmax(dim=0); then weights @ values.",
        ),
        mutants=mutants.ATTEND,
    ),
    Grader(
        key="07.2",
        name="ex07_append",
        reference=append,
        shape=Record(dict(CACHE)),
        cases=_additions,
        hints=(
            "A row is a token. Where do the new tokens' rows go?",
            "torch.cat puts tensors one below the other; the old rows come first.",
            'torch.cat([cache["keys"], keys]), and the same for the values, in a new dict.',
        ),
        mutants=mutants.APPEND,
    ),
    Grader(
        key="07.3",
        name="ex07_decode_step",
        reference=decode_step,
        shape=Record({"output": Tensor(), **CACHE}),
        cases=_steps,
        hints=(
            "The new token attends to itself too. So what must happen before attend?",
            "Append this token's key and value as one row each, then attend to the whole cache.",
            "cache = append(cache, k[None], v[None]); the output is attend(q, cache keys, cache "
            "values); return it together with the new cache.",
        ),
        mutants=mutants.STEP,
    ),
    Grader(
        key="07.4",
        name="ex07_decode",
        reference=decode,
        shape=Tensor(),
        cases=_sequences,
        hints=(
            "Which cache does the first token see, and which the second?",
            "Begin with a cache of no rows; call decode_step for each x and keep what it returns.",
            "Start from torch.zeros(0, d) for both; collect the outputs and torch.stack them.",
        ),
        mutants=mutants.DECODE,
    ),
    Grader(
        key="07.5",
        name="ex07_generate",
        reference=generate,
        shape=Tokens(),
        cases=_requests,
        hints=(
            "Two kinds of call: one with the prompt, then others. What do the others compute?",
            "The first call gets the whole prompt and no cache; each later one gets only the token "
            "that has just come, and the cache of the call before.",
            "token, cache = step(prompt, None); then repeat token, cache = step([token], cache) "
            "until there are max_tokens.",
        ),
        mutants=mutants.GENERATE,
    ),
)
