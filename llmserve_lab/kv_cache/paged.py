"""The KV cache's tensors, addressed by slot: slot = block * block_size + offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

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


class PagedKVCache:
    """Keys and values of every layer, in `num_blocks` blocks and one that is never written.

    keys, values: per layer (slots, KV heads, head dim). The last block is the null block: padding
    reads it, so that no unwritten slot ever reaches the arithmetic.
    """

    def __init__(
        self,
        shape: KVShape,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        import torch

        self.shape, self.block_size = shape, block_size
        self.null_slot = num_blocks * block_size
        size = (self.null_slot + block_size, shape.num_kv_heads, shape.head_dim)
        layers = range(shape.num_layers)
        self.keys = [torch.zeros(size, dtype=dtype, device=device) for _ in layers]
        self.values = [torch.zeros(size, dtype=dtype, device=device) for _ in layers]

    def write(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Store new tokens. slots: (tokens,) int64; keys, values: (tokens, KV heads, head dim)."""
        self.keys[layer].index_copy_(0, slots, keys)
        self.values[layer].index_copy_(0, slots, values)

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensors hold, the null block included."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))


def slots_of(block_table: list[int], start: int, stop: int, block_size: int) -> list[int]:
    """The slots of token positions `start` to `stop - 1`."""
    return [
        block_table[position // block_size] * block_size + position % block_size
        for position in range(start, stop)
    ]
