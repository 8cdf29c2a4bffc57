"""How a transformers model comes to call our attention, for the length of one forward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llmserve_lab.attention.backend import Attention
from llmserve_lab.attention.metadata import BatchMetadata

if TYPE_CHECKING:
    import torch

NAME = "llmserve_lab"


class UnsupportedAttentionError(NotImplementedError):
    """The model asks for a kind of attention that this engine would compute wrongly."""


@contextmanager
def paged(model: Any) -> Iterator[None]:
    """Within this block `model` attends through the paged cache; afterwards it is as before."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attention)
    configs = {id(c): c for c in (model.config, model.config.get_text_config())}.values()
    before = [config._attn_implementation for config in configs]
    for config in configs:
        config._attn_implementation = NAME
    try:
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation = name


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    paged_batch: BatchMetadata | None = None,
    paged_attention: Attention | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' signature: query (1, heads, tokens, dim); returns (1, tokens, heads, dim)."""
    if paged_batch is None or paged_attention is None:
        raise ValueError("The paged attention runs only inside the engine: call LLM.generate.")
    _refuse_what_is_not_done(options, paged_batch)
    output = paged_attention(
        module.layer_idx,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        paged_batch,
        scaling if scaling is not None else query.shape[-1] ** -0.5,
    )
    return output[None], None


def _refuse_what_is_not_done(options: dict[str, Any], batch: BatchMetadata) -> None:
    for name in ("softcap", "s_aux"):
        if options.get(name) is not None:
            raise UnsupportedAttentionError(
                f"This model's attention uses {name}, which this engine does not compute yet."
            )
    window = options.get("sliding_window")
    longest = max(segment.context for segment in batch.segments)
    if window is not None and longest > window:
        raise UnsupportedAttentionError(
            f"This model attends to a sliding window of {window} tokens; set max_model_len to "
            f"at most {window}."
        )
