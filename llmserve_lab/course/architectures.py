"""Published models by their dimensions: what their weights, KV cache and activations take.

The dimensions are those of each model's public config.json; the parameters are counted by building
the model on torch's meta device, which allocates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from llmserve_lab.kv_cache.shape import kv_heads_of

EXPERTS = ".experts."  # in the names of transformers' expert weights
GATED_MLP = 3  # its intermediate values are held three times: activated gate, up, their product
STREAM = 4  # hidden values: the layer's input, the embeddings, the residual, the normalised input


@dataclass(frozen=True, slots=True)
class Architecture:
    """latent: values per token and layer that multi-head latent attention keeps in place of keys
    and values, else 0. mlp_width: intermediate values of one token, in all experts that it uses."""

    name: str
    parameters: int
    expert_parameters: int
    num_experts: int
    experts_per_token: int
    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    latent: int
    mlp_width: int
    vocabulary: int

    @classmethod
    def of(cls, name: str, config: Any) -> Architecture:
        """Read a transformers config."""
        text = config.get_text_config()
        parameters, experts = _count(config)
        heads = text.num_attention_heads
        latent = getattr(text, "kv_lora_rank", None)
        return cls(
            name, parameters, experts, _num_experts(text) if experts else 1,
            text.num_experts_per_tok if experts else 1,
            text.num_hidden_layers, text.hidden_size, heads, kv_heads_of(text),
            getattr(text, "head_dim", None) or text.hidden_size // heads,
            latent + text.qk_rope_head_dim if latent else 0,
            _mlp_width(text), text.vocab_size,
        )  # fmt: skip

    @property
    def attention(self) -> str:
        """MHA, GQA, MQA or MLA: how many queries share a key and a value, or what replaces them."""
        if self.latent:
            return "MLA"
        return {self.num_heads: "MHA", 1: "MQA"}.get(self.num_kv_heads, "GQA")

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied with."""
        idle = self.num_experts - self.experts_per_token
        return self.parameters - self.expert_parameters // self.num_experts * idle

    @property
    def kv_values(self) -> int:
        """Numbers that the KV cache keeps for one token, over all layers."""
        return self.num_layers * (self.latent or 2 * self.num_kv_heads * self.head_dim)

    def activation_values(self, num_tokens: int, num_sampled: int) -> int:
        """Numbers at the peak of one pass over `num_tokens` tokens, `num_sampled` of which get
        logits: in the MLP of one layer, or at the logits. As transformers' Llama computes it,
        without attention masks; other code holds other multiples of the same widths."""
        in_layer = GATED_MLP * self.mlp_width + STREAM * self.hidden
        at_output = self.vocabulary + self.hidden
        return max(num_tokens * in_layer, num_sampled * at_output)


def published(name: str) -> Architecture:
    """A published model, such as "Llama-2-7B".

    Raises:
        ValueError: it is not in `PUBLISHED`.
    """
    if name not in PUBLISHED:
        raise ValueError(f"There is no model {name!r}; there are {', '.join(PUBLISHED)}.")
    return _published(name)


@lru_cache
def _published(name: str) -> Architecture:
    return Architecture.of(name, PUBLISHED[name].config())


@dataclass(frozen=True, slots=True)
class Published:
    """Dimensions as in `source`; `kind` is transformers' config class."""

    source: str
    kind: str
    dimensions: dict[str, Any]

    def config(self) -> Any:
        import transformers

        return getattr(transformers, self.kind)(**self.dimensions)


def _llama(source: str, vocabulary: int, hidden: int, mlp: int, layers: int, heads: int, kv: int,
           kind: str = "LlamaConfig", **others: Any) -> Published:  # fmt: skip
    return Published(
        source, kind,
        {
            "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": mlp,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            **others,
        },
    )  # fmt: skip


def _deepseek(source: str, kind: str, experts: tuple[int, int, int, int, int],
              dimensions: tuple[int, int, int, int, int], **others: Any) -> Published:  # fmt: skip
    """experts: routed, shared, per token, width, first layers without. The rest as for Llama."""
    vocabulary, hidden, mlp, layers, heads = dimensions
    routed, shared, used, width, dense = experts
    return _llama(
        source, vocabulary, hidden, mlp, layers, heads, heads, kind,
        n_routed_experts=routed, n_shared_experts=shared, num_experts_per_tok=used,
        moe_intermediate_size=width, first_k_dense_replace=dense, kv_lora_rank=512,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, tie_word_embeddings=False,
        **others,
    )  # fmt: skip


PUBLISHED = {
    "Llama-2-7B": _llama("meta-llama/Llama-2-7b-hf", 32000, 4096, 11008, 32, 32, 32),
    "Llama-3.1-8B": _llama("meta-llama/Llama-3.1-8B", 128256, 4096, 14336, 32, 32, 8),
    "Llama-3.1-70B": _llama("meta-llama/Llama-3.1-70B", 128256, 8192, 28672, 80, 64, 8),
    "Qwen2.5-7B": _llama(
        "Qwen/Qwen2.5-7B", 152064, 3584, 18944, 28, 28, 4, "Qwen2Config", tie_word_embeddings=False
    ),
    "Falcon-7B": Published(
        "tiiuae/falcon-7b",
        "FalconConfig",
        {
            "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32,
            "num_attention_heads": 71, "multi_query": True, "new_decoder_architecture": False,
        },
    ),
    "Mixtral-8x7B": _llama(
        "mistralai/Mixtral-8x7B-v0.1", 32000, 4096, 14336, 32, 32, 8, "MixtralConfig",
        num_local_experts=8, num_experts_per_tok=2,
    ),
    "DeepSeek-V2-Lite": _deepseek(
        "deepseek-ai/DeepSeek-V2-Lite", "DeepseekV2Config", (64, 2, 6, 1408, 1),
        (102400, 2048, 10944, 27, 16), q_lora_rank=None,
    ),
    "DeepSeek-V3": _deepseek(
        "deepseek-ai/DeepSeek-V3", "DeepseekV3Config", (256, 1, 8, 2048, 3),
        (129280, 7168, 18432, 61, 128), q_lora_rank=1536,
    ),
}  # fmt: skip


def _count(config: Any) -> tuple[int, int]:
    """Parameters in all, and those of experts."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return sum(sizes.values()), sum(size for name, size in sizes.items() if EXPERTS in name)


def _num_experts(text: Any) -> int:
    counts = ("num_local_experts", "num_experts", "n_routed_experts")
    return max(getattr(text, name, None) or 1 for name in counts)


def _mlp_width(text: Any) -> int:
    dense = getattr(text, "intermediate_size", None) or text.ffn_hidden_size
    width = getattr(text, "moe_intermediate_size", None)
    if width:
        return max(dense, (text.num_experts_per_tok + text.n_shared_experts) * width)
    return dense * (getattr(text, "num_experts_per_tok", None) or 1)
