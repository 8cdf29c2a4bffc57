"""How much one token's keys and values take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KEYS_AND_VALUES = 2
AUTO = "auto"
BITS = {"int8": 8, "int4": 4}
GRID_BYTES = 4  # a scale and an offset, float16 each


def bits_of(kv_cache_dtype: str) -> int | None:
    """Bits per code, or None where the cache keeps the model's dtype.

    Raises:
        ValueError: no such dtype.
    """
    if kv_cache_dtype == AUTO:
        return None
    if kv_cache_dtype not in BITS:
        names = ", ".join(map(repr, (AUTO, *BITS)))
        raise ValueError(f"kv_cache_dtype must be one of {names}, not {kv_cache_dtype!r}.")
    return BITS[kv_cache_dtype]


def kv_heads_of(text: Any) -> int:
    """KV heads in a config. Falcon has names of its own, and its new decoder architecture does not
    heed multi_query."""
    if getattr(text, "multi_query", False) and not getattr(text, "new_decoder_architecture", False):
        return 1
    named = (getattr(text, name, None) for name in ("num_key_value_heads", "num_kv_heads"))
    return next(filter(None, named), text.num_attention_heads)


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
        return cls(text.num_hidden_layers, kv_heads_of(text), head_dim)

    def bytes_per_token(self, bytes_per_value: int) -> int:
        return (
            KEYS_AND_VALUES * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_value
        )

    def block_bytes(self, block_size: int, itemsize: int, kv_cache_dtype: str = AUTO) -> int:
        """Bytes of one block of all layers, scales included. itemsize: of the model's dtype."""
        bits = bits_of(kv_cache_dtype)
        if bits is None:
            return block_size * self.bytes_per_token(itemsize)
        codes = KEYS_AND_VALUES * block_size * -(-self.head_dim * bits // 8)
        grids = (self.head_dim + block_size) * GRID_BYTES  # keys per channel, values per token
        return self.num_layers * self.num_kv_heads * (codes + grids)
