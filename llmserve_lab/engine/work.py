"""What a step has to do at least, from the model's sizes: bytes to move, operations to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.kv_cache import KVShape

FLOPS_PER_WEIGHT = 2  # a multiplication and an addition
PRODUCTS = 2  # of attention: queries with keys, probabilities with values
EXPERTS = ".experts."  # in the names of a mixture's weights
EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")  # in configs


@dataclass(frozen=True, slots=True)
class Work:
    """num_bytes: weights once, each request's keys and values once, new ones written; activations
    are left out. flops: floating-point operations of all matrix products."""

    num_bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class ModelWork:
    """linear, output: weights of the layers and of the output layer. weight_bytes: of one weight.
    kv_bytes: keys and values of one token. attention: query heads x head dimension x layers.
    experts: the part of linear that lies in experts, of which each token uses a share."""

    linear: int
    output: int
    weight_bytes: int
    kv_bytes: int
    attention: int
    experts: int = 0
    share: float = 1.0

    @classmethod
    def of(cls, model: Any, kv_bytes: int) -> ModelWork:
        """Read a loaded transformers model. kv_bytes: what its cache holds per token."""
        text = model.config.get_text_config()
        shape = KVShape.of(model.config)
        head = model.get_output_embeddings().weight
        sizes = _matrices(model, head)
        attention = text.num_attention_heads * shape.head_dim * shape.num_layers
        experts = sum(size for name, size in sizes.items() if EXPERTS in name)
        return cls(
            sum(sizes.values()), head.numel(), model.dtype.itemsize, kv_bytes, attention,
            experts, _share(text) if experts else 1.0,
        )  # fmt: skip

    def of_step(self, batch: Sequence[Scheduled]) -> Work:
        """Of one step. A token attends to itself and all before it; its experts are taken to be
        chosen at random, and those that no token chose are not read."""
        tokens = samples = cached = pairs = 0
        for item in batch:
            start, count = item.start, item.num_tokens
            tokens += count
            samples += item.samples
            cached += start + count
            pairs += count * start + count * (count + 1) // 2
        active = self.linear - round((1 - self.share) * self.experts)
        unread = round((1 - self.share) ** tokens * self.experts)
        read = self.linear - unread + (self.output if samples else 0)
        products = tokens * active + samples * self.output + PRODUCTS * self.attention * pairs
        moved = read * self.weight_bytes + (cached + tokens) * self.kv_bytes
        return Work(moved if batch else 0, FLOPS_PER_WEIGHT * products)


def _matrices(model: Any, head: Any) -> dict[str, int]:
    """Weights of each matrix, by name, that tokens are multiplied with; tables are only looked
    up, and the output layer counts apart."""
    import torch

    modules = [*model.modules()]
    tables = {id(m.weight) for m in modules if isinstance(m, torch.nn.Embedding)} | {id(head)}
    return {
        name: weight.numel()
        for name, weight in model.named_parameters()
        if weight.dim() > 1 and id(weight) not in tables
    }


def _share(config: Any) -> float:
    """Of a mixture's experts, the share that each token uses."""
    return config.num_experts_per_tok / max(getattr(config, n, None) or 1 for n in EXPERT_COUNTS)
