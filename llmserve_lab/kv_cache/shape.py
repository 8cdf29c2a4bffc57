"""How much one token's keys and values take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KEYS_AND_VALUES = 2


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one token's keys and values take: layers x KV heads x head dimension, twice."""

    num_layers: int
    num_kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, config: Any) -> KVShape:
        """Read a transformers config (of the text part, where a model has several)."""
        text = config.get_text_config()
        heads = text.num_attention_heads
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
        kv_heads = getattr(text, "num_key_value_heads", None) or heads
        return cls(text.num_hidden_layers, kv_heads, head_dim)

    def bytes_per_token(self, bytes_per_value: int) -> int:
        return (
            KEYS_AND_VALUES * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_value
        )
