"""What one attention layer of a model got and gave in a real forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.checks import require_count

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class LayerPass:
    """attention: the layer's module, with its weights. hidden: (tokens, hidden), what it got.
    cos, sin: (tokens, head dim), the rotary angles of the positions. output: (tokens, hidden), what
    it gave."""

    attention: Any
    hidden: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    output: torch.Tensor

    def rotated(self, vectors: torch.Tensor) -> torch.Tensor:
        """Queries or keys turned by their positions (RoPE, Su et al. 2021, section 3.2.2).

        vectors: (heads, tokens, head dim); returns the same shape.
        """
        import torch

        half = vectors.shape[-1] // 2
        turned = torch.cat([-vectors[..., half:], vectors[..., :half]], dim=-1)
        return vectors * self.cos + turned * self.sin


def layer_pass(model: Any, token_ids: list[int], layer: int) -> LayerPass:
    """Run the model once over `token_ids` and keep what its attention layer `layer` saw. model:
    what `load` returned, of the Llama family.

    Raises:
        ValueError: no token, or no such layer.
    """
    import torch

    layers = model.model.model.layers
    require_count("layer", layer, at_least=0, at_most=len(layers) - 1)
    if not token_ids:
        raise ValueError("layer_pass needs at least one token.")
    seen: dict[str, Any] = {}

    def keep(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        seen.update(kwargs, output=output[0])

    attention = layers[layer].self_attn
    hook = attention.register_forward_hook(keep, with_kwargs=True)
    try:
        with torch.inference_mode():
            ids = torch.tensor([token_ids], device=model.model.device)
            model.model(ids, use_cache=False, logits_to_keep=1)
    finally:
        hook.remove()
    cos, sin = seen["position_embeddings"]
    return LayerPass(attention, seen["hidden_states"][0], cos[0], sin[0], seen["output"][0])
