"""What a step has to do at least, from the model's sizes: bytes to move, operations to compute.

One count for the engine's own metrics and for machines that are only calculated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.step_load import StepLoad
from llmserve_lab.kv_cache import KVShape

FLOPS_PER_WEIGHT = 2  # a multiplication and an addition
PRODUCTS = 2  # of attention: queries with keys, probabilities with values
EXPERTS = ".experts."  # in the names of a mixture's weights
EXPERTS_USED = (
    "num_experts_per_tok",
    "moe_topk",
    "moe_k",
    "top_k_experts",
)  # in configs, by a token
EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True)
class Work:
    """num_bytes: weights once, each request's keys and values once, new ones written; activations
    are left out. flops: floating-point operations of all matrix products."""

    num_bytes: float
    flops: float


@dataclass(frozen=True, slots=True)
class ModelWork:
    """linear, output: weights of the layers and of the output layer. weight_bytes: of one weight,
    on average. kv_bytes: keys and values of one token. attention: query heads x head dimension x
    layers. experts: the part of linear that lies in experts, of which each token uses a share, at
    random."""

    linear: int
    output: int
    weight_bytes: float
    kv_bytes: float
    attention: int
    experts: int = 0
    share: float = 1.0

    @classmethod
    def of(cls, model: Any, kv_bytes: int, kv_shape: KVShape | None = None) -> ModelWork:
        """Read a loaded transformers model. kv_bytes: what its cache holds per token. kv_shape: of
        a model's part, whose work this is, if it is shared."""
        whole = KVShape.of(model.config)
        shape = whole if kv_shape is None else kv_shape
        text = model.config.get_text_config()
        heads = text.num_attention_heads * shape.num_kv_heads // whole.num_kv_heads
        head = model.get_output_embeddings().weight
        matrices, head = _matrices(model, head), _held(head)
        sizes = {name: weight.numel() for name, weight in matrices.items()}
        read = [*matrices.values(), head]
        weight_bytes = sum(w.nbytes for w in read) / sum(w.numel() for w in read)
        attention = heads * shape.head_dim * shape.num_layers
        experts = sum(size for name, size in sizes.items() if EXPERTS in name)
        return cls(
            sum(sizes.values()), head.numel(), weight_bytes, kv_bytes, attention,
            experts, _share(text) if experts else 1.0,
        )  # fmt: skip

    def of_step(self, batch: Sequence[Scheduled]) -> Work:
        """Of one step; without tokens there is none."""
        return self.of_load(StepLoad.of(batch)) if batch else Work(0, 0)

    def of_load(self, load: StepLoad) -> Work:
        """Of a step that asks for so much."""
        return Work(
            self.weights_read(load.tokens, load.samples) + self.kv_moved(load),
            self.linear_flops(load.tokens, load.samples) + self.attention_flops(load.pairs),
        )

    def linear_flops(self, tokens: int, samples: int) -> int:
        """Every token through the layers, each sample through the output layer."""
        active = self.linear - round((1 - self.share) * self.experts)
        return FLOPS_PER_WEIGHT * (tokens * active + samples * self.output)

    def attention_flops(self, pairs: int) -> int:
        """pairs: (query, key), causal: a token attends to itself and all before it."""
        return FLOPS_PER_WEIGHT * PRODUCTS * self.attention * pairs

    def weights_read(self, tokens: int, samples: int) -> float:
        """Bytes: all weights once, without the experts that no token chose."""
        unread = round((1 - self.share) ** tokens * self.experts)
        return (self.linear - unread + (self.output if samples else 0)) * self.weight_bytes

    def kv_moved(self, load: StepLoad) -> float:
        """Bytes: each request's keys and values read, those of new tokens written."""
        return (load.kv_read + load.tokens) * self.kv_bytes


def _matrices(model: Any, head: Any) -> dict[str, Any]:
    """Each matrix, by name, that tokens are multiplied with; tables are only looked up, vectors
    hardly count, and the output layer counts apart."""
    import torch

    modules = [*model.modules()]
    tables = {id(m.weight) for m in modules if isinstance(m, torch.nn.Embedding)} | {id(head)}
    return {
        name: _held(weight)
        for name, weight in model.named_parameters()
        if weight.dim() > 1 and id(weight) not in tables
    }


def _held(weight: Any) -> Any:
    """What this process holds of a weight that may be split among several (a DTensor)."""
    return weight.to_local() if hasattr(weight, "to_local") else weight


def _share(config: Any) -> float:
    """Of a mixture's experts, the share that each token uses."""
    used = [getattr(config, name, None) for name in EXPERTS_USED]
    return next(filter(None, used), num_experts(config)) / num_experts(config)


def num_experts(config: Any) -> int:
    """Of each layer of a mixture; 1 for any other model."""
    return max(getattr(config, name, None) or 1 for name in EXPERT_COUNTS)
