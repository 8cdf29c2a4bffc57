"""How long a decode step takes at least, and what it needs: the roofline (Williams et al. 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.kv_cache import KVShape
from llmserve_lab.simulate.gpus import Gpu

FLOPS_PER_WEIGHT = 2  # a multiplication and an addition
GIB = 2**30
BYTES_16_BIT = 2


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What an estimate needs to know of a model. hidden: query heads x head dimension."""

    name: str
    parameters: int
    hidden: int
    kv: KVShape
    bytes_per_value: int = BYTES_16_BIT

    @classmethod
    def llama2_7b(cls) -> ModelSize:
        """Llama-2-7B, from its published config: 32 layers, 32 heads of 128, no grouping."""
        return cls("Llama-2-7B", 6_738_415_616, 4096, KVShape(32, 32, 128))

    @classmethod
    def of(cls, name: str, model: Any) -> ModelSize:
        """The size of a loaded transformers model."""
        text = model.config.get_text_config()
        kv = KVShape.of(model.config)
        hidden = text.num_attention_heads * kv.head_dim
        return cls(name, model.num_parameters(), hidden, kv, model.dtype.itemsize)

    @property
    def weight_bytes(self) -> int:
        return self.parameters * self.bytes_per_value

    def kv_bytes(self, num_tokens: int) -> int:
        """Keys and values of `num_tokens` tokens, over all layers."""
        return num_tokens * self.kv.bytes_per_token(self.bytes_per_value)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One decode step of a batch. seconds: a floor, which no implementation goes below."""

    batch_size: int
    seconds: float
    memory_bytes: int
    bound: str  # "bandwidth" or "compute"

    @property
    def tokens_per_second(self) -> float:
        return self.batch_size / self.seconds


def decode_estimate(model: ModelSize, gpu: Gpu, batch_size: int, context: int) -> Estimate:
    """A step that adds one token to each of `batch_size` requests of `context` tokens.

    It reads every weight once and every request's KV, and does two operations per weight and
    request besides attention's. The slower of the two decides.
    """
    memory = model.weight_bytes + model.kv_bytes(batch_size * context)
    attention = 2 * FLOPS_PER_WEIGHT * model.kv.num_layers * model.hidden * context
    operations = batch_size * (FLOPS_PER_WEIGHT * model.parameters + attention)
    reading, computing = memory / gpu.bandwidth, operations / gpu.flops
    bound = "bandwidth" if reading >= computing else "compute"
    return Estimate(batch_size, max(reading, computing), memory, bound)
