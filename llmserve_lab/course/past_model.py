"""A transformers model whose KV cache is called `past_key_values`, whatever the version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_lab.course.past import cache_name

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class PastOutput:
    """logits: (rows, tokens, vocabulary), of every token that was given. past_key_values: the
    cache, which now holds their keys and values too."""

    logits: torch.Tensor
    past_key_values: Any


class PastModel:
    """Call it as a transformers model: `model(input_ids, past_key_values=cache)`, with
    `attention_mask` and `position_ids` where rows are padded. `computed` counts the token ids that
    it was given. From transformers 5.24 on the model itself calls the argument `cache`.

    network: a transformers model, such as `load(...).model`. allowed: the most token ids that it
    may be given in all; None: any number.

    Raises:
        RuntimeError: when it is called, and has been given more.
        TypeError: `input_ids` is not a tensor of int64 with two dimensions.
    """

    def __init__(self, network: Any, allowed: int | None = None) -> None:
        self.network, self.allowed, self.computed = network, allowed, 0

    def __call__(
        self,
        input_ids: torch.Tensor,
        past_key_values: Any = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> PastOutput:
        import torch

        self._require(input_ids)
        name = cache_name(self.network)
        with torch.inference_mode():
            output = self.network(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                use_cache=True,
                **{name: past_key_values},
            )
        return PastOutput(output.logits, getattr(output, name))

    def _require(self, input_ids: Any) -> None:
        if getattr(input_ids, "ndim", None) != 2:
            raise TypeError(
                "input_ids is a tensor of shape (rows, tokens): wrap a list as "
                "torch.tensor([tokens])."
            )
        self.computed += input_ids.numel()
        if self.allowed is not None and self.computed > self.allowed:
            raise RuntimeError(
                f"with past_key_values the model is given {self.allowed} token ids in all; this "
                "is more"
            )
