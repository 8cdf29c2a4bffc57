"""The shapes of the two bundled models, and how each is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.models.tokenizer import VOCABULARY


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Llama with grouped-query attention, and its training schedule.

    `lengths` gives the sequence length from each share of the run on: short sequences first, as
    they cost less attention; the full context at the end, so that it works.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    learning_rate: float
    context: int = 1024
    batch_tokens: int = 4096
    lengths: tuple[tuple[float, int], ...] = ((0.0, 512), (0.85, 1024))
    warmup: float = 0.02  # share of the run in which the learning rate rises
    decay_from: float = 0.4  # share of the run after which it falls, linearly, to zero
    weight_decay: float = 0.3
    seed: int = 0

    def config(self) -> Any:
        """The transformers config, dtype bf16 on disk."""
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            intermediate_size=self.intermediate,
            max_position_embeddings=self.context,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )

    def length_at(self, share: float) -> int:
        """Tokens per sequence when `share` (0 to 1) of the run is done."""
        return [length for start, length in self.lengths if share >= start][-1]

    def rate_at(self, share: float) -> float:
        """Learning rate when `share` (0 to 1) of the run is done."""
        rising = min(1.0, share / self.warmup)
        falling = min(1.0, (1.0 - share) / (1.0 - self.decay_from))
        return self.learning_rate * max(0.0, min(rising, falling))


TARGET = Recipe("lab-target", 256, 6, 4, 2, 64, 768, learning_rate=4e-3)
DRAFT = Recipe("lab-draft", 96, 2, 3, 1, 32, 256, learning_rate=8e-3)
