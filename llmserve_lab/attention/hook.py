"""How a transformers model comes to call our attention, for the length of one forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from llmserve_lab.attention.backend import Attention
from llmserve_lab.attention.metadata import BatchMetadata
from llmserve_lab.attention.options import UnsupportedAttentionError, read_options

if TYPE_CHECKING:
    import torch

NAME = "llmserve_lab"
Answer = Callable[..., tuple["torch.Tensor", None]]
# Not an argument of the model's forward: some models do not hand those on to their layers.
ANSWER: ContextVar[Answer] = ContextVar("what answers a layer's call, in this thread")


@contextmanager
def paged(model: Any, batch: BatchMetadata, attention: Attention) -> Iterator[None]:
    """Within this block `model` runs `batch` and attends through its cache; afterwards it is as
    before."""
    with attending(model, NAME, partial(_attend, batch, attention)):
        yield


@contextmanager
def attending(model: Any, name: str, answer: Answer) -> Iterator[None]:
    """Within this block the layers of `model` call `answer` for attention, which transformers knows
    as `name`; afterwards it is as before."""
    from transformers import AttentionInterface

    AttentionInterface.register(name, _answer)
    token = ANSWER.set(answer)
    try:
        with implementation(model, name):
            yield
    finally:
        ANSWER.reset(token)


@contextmanager
def implementation(model: Any, name: str) -> Iterator[None]:
    """Within this block transformers uses the attention of this name; afterwards its own again."""
    configs = {id(c): c for c in (model.config, model.config.get_text_config())}.values()
    before = [config._attn_implementation for config in configs]
    for config in configs:
        config._attn_implementation = name
    try:
        yield
    finally:
        for config, own in zip(configs, before, strict=True):
            config._attn_implementation = own


def _answer(*tensors: Any, **options: Any) -> tuple[torch.Tensor, None]:
    """transformers' signature: module, query, key, value, mask, and options by name."""
    answer = ANSWER.get(None)
    if answer is None:
        raise ValueError("This model is being served: call LLM.generate, not the model itself.")
    return answer(*tensors, **options)


def _attend(
    batch: BatchMetadata,
    attention: Attention,
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """query: (1, heads, tokens, dim); returns (1, tokens, heads, dim)."""
    if attention_mask is not None:
        raise UnsupportedAttentionError("This model's layers make attention masks of their own.")
    output = attention(
        module.layer_idx,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        batch,
        scaling if scaling is not None else query.shape[-1] ** -0.5,
        **read_options(options, dropout),
    )
    return output[None], None
