"""A tiny transformers model with random weights: real calls, a real cache, in milliseconds."""

from __future__ import annotations

from functools import cache
from typing import Any

from llmserve_lab.course.past_model import PastModel

VOCABULARY, POSITIONS = 40, 64
WIDTH, LAYERS, HEADS = 32, 2, 4
SPREAD = 2.0  # of the weights: so large that every token and place matters


class TinyModel(PastModel):
    """Of the GPT-2 family, whose positions are absolute, in float64: a wrong position or mask
    changes its tokens. A copy begins to count anew."""

    def __init__(self, seed: int, allowed: int | None = None) -> None:
        super().__init__(_network(seed), allowed)
        self.seed = seed

    def __deepcopy__(self, memo: Any) -> TinyModel:
        return TinyModel(self.seed, self.allowed)

    def __eq__(self, other: object) -> bool:
        own = (self.seed, self.allowed)
        return isinstance(other, TinyModel) and own == (other.seed, other.allowed)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<a tiny model>"


@cache
def generated(
    seed: int, prompts: tuple[tuple[int, ...], ...], max_tokens: int, pad: int, eos: int | None
) -> tuple[tuple[int, ...], ...]:
    """What transformers' own `generate` writes, greedily, each row up to its first `eos`."""
    import torch

    from llmserve_lab.course.padded import left_padded

    batch = left_padded(prompts, pad)
    with torch.inference_mode():
        rows = _network(seed).generate(
            batch["input_ids"],
            attention_mask=batch["attention_mask"],
            max_new_tokens=max_tokens,
            do_sample=False,
            pad_token_id=pad,
            eos_token_id=eos,
        )[:, batch["input_ids"].shape[1] :]
    return tuple(_ended(row, eos) for row in rows.tolist())


def _ended(row: list[int], eos: int | None) -> tuple[int, ...]:
    end = row.index(eos) + 1 if eos in row else len(row)
    return tuple(row[:end])


@cache
def _network(seed: int) -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        initializer_range=SPREAD, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config).double().eval()
