"""The forward pass of models built like Llama, without what transformers' modules do around it.

Pre-norm layers of rotary grouped-query attention and a gated MLP (Touvron et al. 2023, section 2).
The weights are the model's own, its query, key and value projections one product, its gate and up
projections another. The same numbers come out, up to rounding, in a fraction of the calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from llmserve_lab.models.fused_linear import FusedLinear, is_split
from llmserve_lab.models.int8_linear import Int8Linear
from llmserve_lab.models.rms_norm import RMSNorm

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
PARTS = ("ForCausalLM", "Model", "DecoderLayer", "Attention", "MLP", "RMSNorm", "RotaryEmbedding")
ACTIVATIONS = "transformers.activations"  # the module that they are from

# (transformers' attention module, queries, keys, values: each (tokens, heads, dim)) to
# (tokens, heads, dim)
Attend = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
# (hidden states, the positions' rotation, attention) to hidden states
Layer = Callable[[torch.Tensor, "Rotation", Attend], torch.Tensor]


class Decoder:
    """Runs a flattened batch through a model that `supports` accepts."""

    def __init__(self, model: Any) -> None:
        inner = model.model
        self.config = inner.config
        self.embeddings, self.rotary = inner.embed_tokens, inner.rotary_emb
        self.norm = RMSNorm(inner.norm)
        self.layers: Sequence[Layer] = [DecoderLayer(layer) for layer in inner.layers]
        self.head = FusedLinear([model.lm_head])

    def __call__(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        attend: Attend,
    ) -> torch.Tensor:
        """tokens, positions: (tokens,) int64. rows: those whose logits are wanted. Returns (rows,
        vocabulary)."""
        hidden = self.embeddings(tokens)
        turn = Rotation(*self.rotary(hidden, positions[None]))
        for layer in self.layers[: self.config.num_hidden_layers]:
            hidden = layer(hidden, turn, attend)
        return self.head(self.norm(hidden[rows]))


class DecoderLayer:
    """One layer, on the weights of transformers' layer."""

    def __init__(self, layer: Any) -> None:
        self.attention, self.mlp = layer.self_attn, layer.mlp
        self.first_norm = RMSNorm(layer.input_layernorm)
        self.second_norm = RMSNorm(layer.post_attention_layernorm)
        attention = self.attention
        self.head_dim, self.num_groups = attention.head_dim, attention.num_key_value_groups
        self.qkv = FusedLinear([attention.q_proj, attention.k_proj, attention.v_proj])
        self.output = FusedLinear([attention.o_proj])
        self.gate_up = FusedLinear([self.mlp.gate_proj, self.mlp.up_proj])
        self.down = FusedLinear([self.mlp.down_proj])
        self.head_norms = None  # Qwen3 normalises each query and key head
        if hasattr(attention, "q_norm"):
            self.head_norms = RMSNorm(attention.q_norm), RMSNorm(attention.k_norm)

    def __call__(self, hidden: torch.Tensor, turn: Rotation, attend: Attend) -> torch.Tensor:
        """hidden: (tokens, hidden size), written to."""
        attended = attend(self.attention, *self.before(hidden, turn))
        return self.after(hidden, attended.flatten(1))

    def before(self, hidden: torch.Tensor, turn: Rotation) -> tuple[torch.Tensor, ...]:
        """Up to attention: queries, keys and values, each (tokens, heads, dim)."""
        heads = self.qkv(self.first_norm(hidden)).unflatten(-1, (-1, self.head_dim))
        # As many as there are here: of a model that is split, each process has some.
        num_kv_heads = heads.shape[1] // (self.num_groups + 2)
        values = heads[:, -num_kv_heads:]
        turned = turn(self._normalised(heads[:, :-num_kv_heads], num_kv_heads))
        return turned[:, :-num_kv_heads], turned[:, -num_kv_heads:], values

    def after(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """From attention on. hidden: what `before` was given, written to. attended: (tokens, heads
        x dim)."""
        hidden += self.output(attended)
        hidden += self._feed_forward(self.second_norm(hidden))
        return hidden

    def _normalised(self, heads: torch.Tensor, num_kv_heads: int) -> torch.Tensor:
        """heads: (tokens, query and key heads, dim)."""
        if self.head_norms is None:
            return heads
        parts = heads[:, :-num_kv_heads], heads[:, -num_kv_heads:]
        pairs = zip(self.head_norms, parts, strict=True)
        return torch.cat([norm(part) for norm, part in pairs], 1)

    def _feed_forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """SwiGLU and its kin (Shazeer 2020)."""
        gate, up = self.gate_up(hidden).chunk(2, -1)
        return self.down(self.mlp.act_fn(gate).mul_(up))


class Rotation:
    """Rotary position embedding (Su et al. 2021), in transformers' layout: component i of a head
    turns with component i + dim / 2. cos, sin: (1, tokens, dim)."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor) -> None:
        self.half = sin.shape[-1] // 2
        self.cos = cos[0, :, None]
        self.sin = torch.cat((-sin[0, :, None, : self.half], sin[0, :, None, self.half :]), -1)

    def __call__(self, heads: torch.Tensor) -> torch.Tensor:
        """(tokens, heads, dim), at the batch's positions."""
        return (heads * self.cos).addcmul_(heads.roll(self.half, -1), self.sin)


def supports(model: Any) -> bool:
    """Whether `Decoder` computes what this model does: it is of a known family, none of its modules
    is a subclass or a stranger, and none has a hook or a forward of its own, but those that
    transformers gives to the layers that it splits."""
    family = type(model).__name__.removesuffix("ForCausalLM")
    source = f"transformers.models.{family.lower()}.modeling_{family.lower()}"
    if family not in FAMILIES or type(model).__module__ != source:
        return False
    parts = vars(sys.modules[source])
    known = {parts.get(family + part) for part in PARTS}
    known |= {torch.nn.Embedding, torch.nn.ModuleList, torch.nn.Linear, Int8Linear}
    splittable = {torch.nn.Embedding, torch.nn.Linear, parts.get(family + "RMSNorm")}
    return all(
        (type(module) in known or type(module).__module__ == ACTIVATIONS)
        and (_is_plain(module) or (type(module) in splittable and is_split(module)))
        for module in model.modules()
    )


def _is_plain(module: Any) -> bool:
    hooks = module._forward_hooks or module._forward_pre_hooks
    return not hooks and "forward" not in vars(module)
