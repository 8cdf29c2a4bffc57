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


def score(model: Any, tokenizer: Any, texts: Sequence[str]) -> HeldOutScore:
    """Negative log-likelihood of `texts` under `model`, each text from its own start.

    Every token is predicted once, with at least `WINDOW - STRIDE` tokens of context where the
    text has them; the first follows the end-of-text token.
    """
    import torch

    nats, tokens = 0.0, 0
    for ids, first_new in _windows(tokenizer, texts):
        logits = _logits(model, ids)[first_new - 1 : -1].float()
        targets = torch.tensor(ids[first_new:], device=logits.device)
        nats += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        tokens += len(targets)
    return HeldOutScore(nats, tokens, sum(len(text.encode()) for text in texts))


def greedy_agreement(model: Any, other: Any, tokenizer: Any, texts: Sequence[str]) -> float:
    """Share of positions at which both models' most likely next token is the same (0 to 1)."""
    same, total = 0, 0
    for ids, first_new in _windows(tokenizer, texts):
        first = _logits(model, ids)[first_new - 1 : -1].argmax(-1)
        second = _logits(other, ids)[first_new - 1 : -1].argmax(-1)
        same += int((first == second.to(first.device)).sum())
        total += len(first)
    return same / total


def gzip_bits_per_byte(texts: Sequence[str]) -> float:
    """What `gzip -9` needs for the same texts, each compressed on its own."""
    compressed = sum(len(gzip.compress(text.encode(), 9)) for text in texts)
    return 8 * compressed / sum(len(text.encode()) for text in texts)


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


def _logits(model: Any, ids: list[int]) -> torch.Tensor:
    import torch

    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0]
