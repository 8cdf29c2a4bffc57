"""Exercise 10: transformers' generate rebuilt with past_key_values, alone and in a padded batch."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_lab.course.checks import ex10_mutants as mutants
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Number, Record, same
from llmserve_lab.course.checks.tensor import Tensor
from llmserve_lab.course.checks.tiny_model import VOCABULARY, TinyModel, generated
from llmserve_lab.course.checks.tokens import Rows, Tokens
from llmserve_lab.course.padded import left_padded

if TYPE_CHECKING:
    import torch

Prompts = list[list[int]]

PAD = 0
NO_EOS = VOCABULARY  # never comes
MODELS = 12
LONGEST, MOST_TOKENS, MOST_ROWS = 8, 6, 4


@dataclass(eq=False, slots=True)
class CacheLayer:
    """keys, values: (batch, KV heads, tokens, head dimension)."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(eq=False, slots=True)
class Cache:
    """Has of transformers' `DynamicCache` what its size depends on."""

    layers: list[CacheLayer]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cache) and same(self._tensors(), other._tensors())

    def _tensors(self) -> list[Any]:
        return [tensor for layer in self.layers for tensor in (layer.keys, layer.values)]

    def __repr__(self) -> str:
        told = ", ".join(f"{tuple(layer.keys.shape)} {layer.keys.dtype}" for layer in self.layers)
        return f"<a cache with keys of shape {told}>"


def kv_bytes(cache: Any) -> int:
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def generate(model: TinyModel, prompt: list[int], max_tokens: int) -> list[int]:
    """By transformers itself: what a learner's loop must equal."""
    return list(generated(model.seed, (tuple(prompt),), max_tokens, PAD, None)[0])


def generate_until(model: TinyModel, prompt: list[int], max_tokens: int, eos: int) -> list[int]:
    return list(generated(model.seed, (tuple(prompt),), max_tokens, PAD, eos)[0])


def generate_batch(
    model: TinyModel, prompts: Prompts, max_tokens: int, pad: int, eos: int
) -> Prompts:
    rows = tuple(map(tuple, prompts))
    return [list(row) for row in generated(model.seed, rows, max_tokens, pad, eos)]


def _tokens(rng: random.Random, count: int) -> list[int]:
    return rng.sample(range(1, VOCABULARY), count)


def _caches(rng: random.Random) -> list[Arguments]:
    import torch

    cases = []
    for dtype in (torch.float32, torch.float16, torch.float64, torch.bfloat16):
        rows, heads, dim = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 4)
        lengths = [rng.randint(2, 9) for _ in range(rng.randint(2, 4))]
        layers = [
            CacheLayer(
                torch.zeros(rows, heads, length, dim, dtype=dtype),
                torch.zeros(rows, heads, length, dim + 1, dtype=dtype),
            )
            for length in lengths
        ]
        cases.append({"cache": Cache(layers)})
    return cases


def _requests(rng: random.Random) -> list[Arguments]:
    cases = []
    drawn = [(rng.randint(2, LONGEST), MOST_TOKENS) for _ in range(2)]
    for n, max_tokens in [(3, 4), (2, 1), *drawn]:
        model = TinyModel(rng.randrange(MODELS), allowed=n + max_tokens - 1)
        cases.append({"model": model, "prompt": _tokens(rng, n), "max_tokens": max_tokens})
    return cases


def _ending_requests(rng: random.Random) -> list[Arguments]:
    """The end comes in the middle, at once, never, and is in the prompt already."""
    cases = []
    for place in (2, 0, None):
        prompt, seed = _tokens(rng, rng.randint(2, LONGEST)), rng.randrange(MODELS)
        eos = NO_EOS if place is None else _written(seed, prompt)[place]
        cases.append(_ending(seed, prompt, eos))
    others = (token for token in prompt if _written(seed, prompt)[0] != token)
    return [*cases, _ending(seed, prompt, next(others))]


def _written(seed: int, prompt: list[int], eos: int | None = None) -> tuple[int, ...]:
    return generated(seed, (tuple(prompt),), MOST_TOKENS, PAD, eos)[0]


def _ending(seed: int, prompt: list[int], eos: int) -> Arguments:
    """A request whose model is allowed no call after the end."""
    model = TinyModel(seed, allowed=len(prompt) + len(_written(seed, prompt, eos)) - 1)
    return {"model": model, "prompt": prompt, "max_tokens": MOST_TOKENS, "eos": eos}


def _prompt_lists(rng: random.Random) -> list[Arguments]:
    sizes = [[3, 1], [1, 4, 2], [2]]
    sizes += [[rng.randint(1, LONGEST) for _ in range(rng.randint(2, MOST_ROWS))] for _ in range(3)]
    return [
        {"prompts": [_tokens(rng, size) for size in row], "pad": rng.randrange(VOCABULARY)}
        for row in sizes
    ]


def _batches(rng: random.Random) -> list[Arguments]:
    """Rows that end at different times, or never; two that are equal, and so end together."""
    cases = []
    shapes = (([5, 2], None), ([2, 6, 3], 1), ([4, 4], 2), ([7, 3, 1, 5], 2), ([1, 6], None))
    for lengths, place in shapes:
        prompts, seed = [_tokens(rng, n) for n in lengths], rng.randrange(MODELS)
        prompts = prompts[:1] * 2 if lengths == [4, 4] else prompts
        rows = tuple(map(tuple, prompts))
        eos = NO_EOS
        if place is not None:
            eos = generated(seed, rows, MOST_TOKENS, PAD, None)[-1][place]
        written = generated(seed, rows, MOST_TOKENS, PAD, eos)
        allowed = len(lengths) * (max(lengths) + max(map(len, written)) - 1)
        cases.append(
            {"model": TinyModel(seed, allowed), "prompts": prompts, "max_tokens": MOST_TOKENS,
             "pad": PAD, "eos": eos}
        )  # fmt: skip
    return cases


GRADERS = (
    Grader(
        key="10.1",
        name="ex10_kv_bytes",
        reference=kv_bytes,
        shape=Number("bytes", whole=True),
        cases=_caches,
        hints=(
            "Which tensors does a cache hold, and how many bytes does a tensor have?",
            "Each layer has keys and values; a tensor's nbytes is its size.",
            "sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)",
        ),
        mutants=mutants.KV_BYTES,
    ),
    Grader(
        key="10.2",
        name="ex10_generate",
        reference=generate,
        shape=Tokens(),
        cases=_requests,
        hints=(
            "What goes into a call after the first, and what comes with it?",
            "The newest token alone, as a tensor of shape (1, 1), and the past_key_values of the "
            "call before. The last row of the logits gives the next token.",
            "output = model(torch.tensor([tokens[-1:]]), output.past_key_values), then append "
            "int(output.logits[0, -1].argmax()).",
        ),
        mutants=mutants.GENERATE,
    ),
    Grader(
        key="10.3",
        name="ex10_generate_until",
        reference=generate_until,
        shape=Tokens(),
        cases=_ending_requests,
        hints=(
            "There are two reasons to stop. Where do you have to look before each call?",
            "Go on while there are fewer than max_tokens and the newest token is not eos. The "
            "prompt may hold eos too: that does not count.",
            "while len(tokens) < max_tokens and tokens[-1] != eos: the same two lines as in 10.2.",
        ),
        mutants=mutants.UNTIL,
    ),
    Grader(
        key="10.4",
        name="ex10_left_padded",
        reference=left_padded,
        shape=Record({name: Tensor() for name in ("input_ids", "attention_mask", "position_ids")}),
        cases=_prompt_lists,
        hints=(
            "How many places of padding does a row need, and where do its positions begin?",
            "gap = longest - len(prompt) places on the left, with 0 in the mask. The first real "
            "token has position 0, however many places stand before it.",
            "A row of each: [pad] * gap + prompt; [0] * gap + [1] * len(prompt); "
            "[0] * gap + list(range(len(prompt))).",
        ),
        mutants=mutants.PADDED,
    ),
    Grader(
        key="10.5",
        name="ex10_generate_batch",
        reference=generate_batch,
        shape=Rows(),
        cases=_batches,
        hints=(
            "After each call the cache has one more column. What else has to grow with it?",
            "The mask gets a column of ones; the next position of a row is the number of its real "
            "tokens so far. Stop when every row has its eos, and cut what follows it.",
            "tokens = output.logits[:, -1].argmax(-1, keepdim=True); mask = torch.cat([mask, "
            "torch.ones_like(tokens)], 1); positions = mask.sum(1, keepdim=True) - 1; then "
            "model(tokens, output.past_key_values, mask, positions).",
        ),
        mutants=mutants.BATCH,
    ),
)
