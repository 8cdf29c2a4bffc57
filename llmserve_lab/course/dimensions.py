"""A decoder's widths, from which the operations of a prefill follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A Llama-like decoder. kv_width: KV heads x head dimension. intermediate: width of the MLP."""

    name: str
    num_layers: int
    hidden: int
    kv_width: int
    intermediate: int
    vocabulary: int
    tied: bool = False  # whether the output layer is the token table

    @classmethod
    def of(cls, name: str, model: Any) -> Dimensions:
        """Of a loaded transformers model of the Llama family."""
        c = model.config.get_text_config()
        return cls(
            name, c.num_hidden_layers, c.hidden_size, c.num_key_value_heads * c.head_dim,
            c.intermediate_size, c.vocab_size, c.tie_word_embeddings,
        )  # fmt: skip

    @property
    def layer_weights(self) -> int:
        """Weights that every token is multiplied with, in all layers: queries, keys, values and
        output of attention, three matrices of the MLP."""
        attention = 2 * self.hidden * (self.hidden + self.kv_width)
        return self.num_layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def parameters(self) -> int:
        """All of them, with token tables and norms."""
        tables = (1 if self.tied else 2) * self.vocabulary * self.hidden
        norms = (2 * self.num_layers + 1) * self.hidden
        return self.layer_weights + tables + norms


# From the models' published config.json.
PUBLISHED = (
    Dimensions("Llama-2-7B", 32, 4096, 4096, 11008, 32000),
    Dimensions("Llama-3.1-8B", 32, 4096, 1024, 14336, 128256),
    Dimensions("Llama-3.1-70B", 80, 8192, 1024, 28672, 128256),
)
