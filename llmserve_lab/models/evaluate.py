"""How good a model is: bits per byte on text it never saw, and how often two models agree."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WINDOW = 1024  # tokens the model sees at once
STRIDE = 512  # tokens by which the window moves; the rest of it is context only


@dataclass(frozen=True, slots=True)
class HeldOutScore:
    """Loss on held-out text. `nats` is summed over `num_tokens` tokens, `num_bytes` of UTF-8."""

    nats: float
    num_tokens: int
    num_bytes: int

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.num_bytes

    @property
    def perplexity(self) -> float:
        """Per token: exp(mean negative log-likelihood)."""
        return math.exp(self.nats / self.num_tokens)


@dataclass(frozen=True, slots=True)
class PairScore:
    """Two models on the same text, and at how many positions they choose the same token."""

    first: HeldOutScore
    second: HeldOutScore
    num_agreed: int

    @property
    def agreement(self) -> float:
        """Share of positions with the same most likely next token (0 to 1)."""
        return self.num_agreed / self.first.num_tokens


def score(model: Any, tokenizer: Any, texts: Sequence[str]) -> HeldOutScore:
    """Negative log-likelihood of `texts` under `model`, each text from its own start.

    Every token is predicted once, with at least `WINDOW - STRIDE` tokens of context where the
    text has them; the first follows the end-of-text token.
    """
    nats, tokens = 0.0, 0
    for ids, first_new in _windows(tokenizer, texts):
        nats += _nats(_predictions(model, ids, first_new), ids[first_new:])
        tokens += len(ids) - first_new
    return HeldOutScore(nats, tokens, _num_bytes(texts))


def score_pair(model: Any, other: Any, tokenizer: Any, texts: Sequence[str]) -> PairScore:
    """Both models' scores and their agreement, in one pass over `texts`."""
    nats, other_nats, tokens, agreed = 0.0, 0.0, 0, 0
    for ids, first_new in _windows(tokenizer, texts):
        first, second = (_predictions(m, ids, first_new) for m in (model, other))
        nats += _nats(first, ids[first_new:])
        other_nats += _nats(second, ids[first_new:])
        agreed += int((first.argmax(-1) == second.argmax(-1).to(first.device)).sum())
        tokens += len(ids) - first_new
    size = _num_bytes(texts)
    return PairScore(
        HeldOutScore(nats, tokens, size), HeldOutScore(other_nats, tokens, size), agreed
    )


def greedy_agreement(model: Any, other: Any, tokenizer: Any, texts: Sequence[str]) -> float:
    """Share of positions at which both models' most likely next token is the same (0 to 1)."""
    return score_pair(model, other, tokenizer, texts).agreement


def gzip_bits_per_byte(texts: Sequence[str]) -> float:
    """What `gzip -9` needs for the same texts, each compressed on its own."""
    compressed = sum(len(gzip.compress(text.encode(), 9)) for text in texts)
    return 8 * compressed / _num_bytes(texts)


def _num_bytes(texts: Sequence[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def _windows(tokenizer: Any, texts: Sequence[str]) -> Iterator[tuple[list[int], int]]:
    """Yield token windows, with the index of the first token that is to be predicted."""
    for text in texts:
        ids = [tokenizer.eos_token_id, *tokenizer(text, verbose=False)["input_ids"]]
        known = 1
        while known < len(ids):
            end = min(len(ids), max(known, WINDOW - STRIDE) + STRIDE)
            start = max(0, end - WINDOW)
            yield ids[start:end], known - start
            known = end


def _predictions(model: Any, ids: list[int], first_new: int) -> torch.Tensor:
    """(new tokens, vocabulary) float32 logits: row i is what the model says of token
    `first_new + i` before it sees it."""
    import torch

    with torch.inference_mode():
        inputs = torch.tensor([ids], device=model.device)
        return model(input_ids=inputs, use_cache=False).logits[0, first_new - 1 : -1].float()


def _nats(predictions: torch.Tensor, targets: list[int]) -> float:
    """Negative log-likelihood of `targets`, summed."""
    import torch

    wanted = torch.tensor(targets, device=predictions.device)
    return torch.nn.functional.cross_entropy(predictions, wanted, reduction="sum").item()
