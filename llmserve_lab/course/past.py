"""One pass of a transformers model with its own KV cache, whatever the argument is called."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

NAMES = ("cache", "past_key_values")  # from transformers 5.24 on, and before


def with_past(model: Any, ids: torch.Tensor, past: Any = None) -> tuple[torch.Tensor, Any]:
    """Compute `ids`, (1, tokens) int64, after the tokens whose keys and values `past` holds (None:
    after none). Returns the last token's logits, (vocabulary,), and the cache, which now holds
    theirs too.

    model: a transformers model, such as `load(...).model`. `past` itself is added to, not copied.
    """
    import torch

    name = cache_name(model)
    with torch.inference_mode():
        output = model(ids, use_cache=True, logits_to_keep=1, **{name: past})
    return output.logits[0, -1], getattr(output, name)


def cache_name(model: Any) -> str:
    """What the argument is called in this model's forward."""
    known = signature(model.forward).parameters
    return next(name for name in NAMES if name in known)
