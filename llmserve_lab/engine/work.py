"""What a step has to do at least, from the model's sizes: bytes to move, operations to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.kv_cache import KVShape

FLOPS_PER_WEIGHT = 2  # a multiplication and an addition
PRODUCTS = 2  # of attention: queries with keys, probabilities with values


@dataclass(frozen=True, slots=True)
class Work:
    """num_bytes: weights once, each request's keys and values once, new ones written; activations
    are left out. flops: floating-point operations of all matrix products."""

    num_bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class ModelWork:
    """linear, output: weights of the layers and of the output layer. weight_bytes: of one weight.
    kv_bytes: keys and values of one token. attention: query heads x head dimension x layers. Every
    expert of a mixture counts as used."""

    linear: int
    output: int
    weight_bytes: int
    kv_bytes: int
    attention: int

    @classmethod
    def of(cls, model: Any, kv_bytes: int) -> ModelWork:
        """Read a loaded transformers model. kv_bytes: what its cache holds per token."""
        text = model.config.get_text_config()
        shape = KVShape.of(model.config)
        tables = {id(model.get_input_embeddings().weight)}
        head = model.get_output_embeddings()
        output = 0 if head is None else head.weight.numel()
        if head is not None:
            tables.add(id(head.weight))
        matrices = [p for p in model.parameters() if p.dim() > 1 and id(p) not in tables]
        attention = text.num_attention_heads * shape.head_dim * shape.num_layers
        linear = sum(p.numel() for p in matrices)
        return cls(linear, output, model.dtype.itemsize, kv_bytes, attention)

    def of_step(self, batch: Sequence[Scheduled]) -> Work:
        """Of one step. A token attends to itself and all before it."""
        tokens = samples = cached = pairs = 0
        for item in batch:
            start, count = item.start, item.num_tokens
            tokens += count
            samples += item.samples
            cached += start + count
            pairs += count * start + count * (count + 1) // 2
        read = self.linear + (self.output if samples else 0)
        products = tokens * self.linear + samples * self.output + PRODUCTS * self.attention * pairs
        moved = read * self.weight_bytes + (cached + tokens) * self.kv_bytes
        return Work(moved if batch else 0, FLOPS_PER_WEIGHT * products)
