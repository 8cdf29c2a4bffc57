"""A model by its dimensions: what a cost model needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.engine.work import ModelWork, num_experts
from llmserve_lab.kv_cache import KVShape

BYTES_16_BIT = 2


@dataclass(frozen=True, slots=True)
class ModelSize:
    """hidden: query heads x head dimension. kv: with fewer KV heads than query heads where queries
    are grouped (GQA). bytes_per_value: of weights and KV (0.5 for int4); bytes_per_kv: of KV, if it
    differs. expert_parameters: how many of `parameters` lie in `num_experts` experts (all layers),
    of which a token uses `experts_per_token`.

    output_parameters: the output layer's, which only a token that is sampled needs.
    idle_parameters: those that nothing is multiplied with, such as an embedding table of its own.
    Without the two every token is multiplied with all parameters, as in the formula of the course:
    for Llama-2-7B that is 2% too much.
    """

    name: str
    parameters: int
    hidden: int
    kv: KVShape
    bytes_per_value: float = BYTES_16_BIT
    bytes_per_kv: float | None = None
    expert_parameters: int = 0
    num_experts: int = 1
    experts_per_token: int = 1
    output_parameters: int = 0
    idle_parameters: int = 0

    @classmethod
    def llama2_7b(cls) -> ModelSize:
        """Llama-2-7B, from its published config: 32 layers, 32 heads of 128, no grouping."""
        return cls("Llama-2-7B", 6_738_415_616, 4096, KVShape(32, 32, 128))

    @classmethod
    def llama2_13b(cls) -> ModelSize:
        """Llama-2-13B, from its published config: 40 layers, 40 heads of 128, no grouping."""
        return cls("Llama-2-13B", 13_015_864_320, 5120, KVShape(40, 40, 128))

    @classmethod
    def llama3_8b(cls) -> ModelSize:
        """Llama-3.1-8B, from its published config: 32 layers, 32 heads of 128, 8 KV heads."""
        return cls("Llama-3.1-8B", 8_030_261_248, 4096, KVShape(32, 8, 128))

    @classmethod
    def llama3_70b(cls) -> ModelSize:
        """Llama-3.1-70B, from its published config: 80 layers, 64 heads of 128, 8 KV heads."""
        return cls("Llama-3.1-70B", 70_553_706_496, 8192, KVShape(80, 8, 128))

    @classmethod
    def mixtral_8x7b(cls) -> ModelSize:
        """Mixtral-8x7B, from its published config: 32 layers of 8 experts (3 matrices of 4096 x
        14336 each), 2 of them per token."""
        experts = 32 * 8 * 3 * 4096 * 14336
        return cls(
            "Mixtral-8x7B", 46_702_792_704, 4096, KVShape(32, 8, 128),
            expert_parameters=experts, num_experts=8, experts_per_token=2,
        )  # fmt: skip

    @classmethod
    def of(cls, name: str, model: Any) -> ModelSize:
        """The size of a loaded transformers model, counted matrix by matrix."""
        text, kv = model.config.get_text_config(), KVShape.of(model.config)
        work, total = ModelWork.of(model, 0), model.num_parameters()
        count = num_experts(text) if work.experts else 1
        return cls(
            name, total, text.num_attention_heads * kv.head_dim, kv, model.dtype.itemsize,
            expert_parameters=work.experts,
            num_experts=count,
            experts_per_token=round(work.share * count),
            output_parameters=work.output,
            idle_parameters=total - work.linear - work.output,
        )  # fmt: skip

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.hidden // self.kv.head_dim

    @property
    def weight_bytes(self) -> int:
        return int(self.parameters * self.bytes_per_value)

    @property
    def active_parameters(self) -> float:
        """Parameters that one token uses: all but the experts that it does not choose."""
        idle = 1 - self.experts_per_token / self.num_experts
        return self.parameters - idle * self.expert_parameters

    @property
    def work(self) -> ModelWork:
        """What steps of this model have to move and compute."""
        return ModelWork(
            linear=self.parameters - self.output_parameters - self.idle_parameters,
            output=self.output_parameters,
            weight_bytes=self.bytes_per_value,
            kv_bytes=self.kv.bytes_per_token(1) * self._bytes_per_kv,
            attention=self.hidden * self.kv.num_layers,
            experts=self.expert_parameters,
            share=self.experts_per_token / self.num_experts,
        )

    def read_bytes(self, num_tokens: int) -> float:
        """Weights that a step over `num_tokens` tokens reads: all but the experts that no token
        chose, if each token chooses at random."""
        return self.work.weights_read(num_tokens, num_tokens)

    def kv_bytes(self, num_tokens: int) -> int:
        """Keys and values of `num_tokens` tokens, over all layers."""
        return int(num_tokens * self.kv.bytes_per_token(1) * self._bytes_per_kv)

    @property
    def _bytes_per_kv(self) -> float:
        return self.bytes_per_value if self.bytes_per_kv is None else self.bytes_per_kv
