"""What the layers of a model ask of attention: seen in one run of it on a few tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from llmserve_lab.attention.hook import attending
from llmserve_lab.attention.options import UnsupportedAttentionError, read_options

if TYPE_CHECKING:
    import torch

NAME = "llmserve_lab_survey"


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One call of attention. visible: the layer's mask, as a function of (batch, head, query, key)
    positions. options: as `reference.paged_attention` takes them."""

    layer: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    visible: Any
    options: dict[str, Any]

    def masks_like_the_engine(self, max_model_len: int, device: torch.device) -> bool:
        """Whether its mask lets the first tokens and the last of the longest text see what the
        engine lets them see: themselves, and all before or as far back as the window reaches."""
        import torch

        window = self.options.get("window") or max_model_len
        for query in {0, 1, max_model_len - 2, max_model_len - 1}:
            keys = torch.arange(max_model_len, device=device)
            first = keys.new_zeros(())
            own = self.visible(first, first, first + query, keys).expand_as(keys)
            if not torch.equal(own, (keys <= query) & (keys > query - window)):
                return False
        return True


def survey(model: Any, token_ids: list[int]) -> list[LayerCall]:
    """Run the model on a few tokens; returns its calls of attention, in order. Each is answered
    with zeros.

    Raises:
        UnsupportedAttentionError: a layer asks for what this engine does not know.
    """
    import torch
    from transformers import AttentionMaskInterface

    AttentionMaskInterface.register(NAME, _described_mask)
    calls: list[LayerCall] = []
    with torch.inference_mode(), attending(model, NAME, partial(_note, calls)):
        model(
            input_ids=torch.tensor([token_ids], device=model.device),
            position_ids=torch.arange(len(token_ids), device=model.device)[None],
            use_cache=False,
        )
    return calls


def _note(
    calls: list[LayerCall],
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    visible = getattr(attention_mask, "visible", None)
    if visible is None:
        raise UnsupportedAttentionError("This model's layers make attention masks of their own.")
    (_, kv_heads, _, key_dim), value_dim = key.shape, value.shape[-1]
    asked = read_options(options, dropout)
    calls.append(LayerCall(module.layer_idx, kv_heads, key_dim, value_dim, visible, asked))
    batch, heads, tokens, _ = query.shape
    return value.new_zeros(batch, tokens, heads, value_dim), None


def _described_mask(*args: Any, **known: Any) -> Any:
    """A mask as transformers makes it, with the function that it comes from."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    always = dict.fromkeys(("allow_is_causal_skip", "allow_is_bidirectional_skip"), False)
    mask = ALL_MASK_ATTENTION_FUNCTIONS["eager"](*args, **(known | always))
    mask.visible = known["mask_function"]
    return mask
