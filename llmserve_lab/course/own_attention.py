"""A learner's own attention function inside the real engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from llmserve_lab.kv_cache import slots_of

if TYPE_CHECKING:
    import torch

    from llmserve_lab.attention import BatchMetadata

OneHead = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]


def use_attention(llm: Any, attention: OneHead) -> None:
    """Let every layer of `llm` attend with `attention(q, k, v)`, one head of one request at a time.

    q: (m, head dim), the newest m of n tokens; k, v: (n, head dim). Returns (m, head dim).
    """
    llm._engine.runner.attention = partial(_all_heads, attention)


def _all_heads(
    attention: OneHead,
    layer: int,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: BatchMetadata,
    scaling: float,
) -> torch.Tensor:
    """The engine's signature; see `attention.reference.paged_attention`."""
    cache = batch.cache
    cache.write(layer, batch.slot_mapping, keys, values)
    output = queries.new_empty(queries.shape)
    group = queries.shape[1] // keys.shape[1]  # query heads that share a KV head
    for segment in batch.segments:
        rows = slice(segment.row, segment.row + segment.num_tokens)
        slots = slots_of(segment.block_table, 0, segment.context, cache.block_size)
        past = cache.read(layer, queries.new_tensor(slots).long())
        for head in range(queries.shape[1]):
            k, v = (kind[:, head // group] for kind in past)
            output[rows, head] = _checked(attention(queries[rows, head], k, v), queries[rows, head])
    return output


def _checked(result: Any, like: torch.Tensor) -> torch.Tensor:
    shape = getattr(result, "shape", None)
    if shape != like.shape:
        raise ValueError(
            f"Your attention returned {type(result).__name__} of shape {shape} for queries of "
            f"shape {tuple(like.shape)}: return one row of values for each query."
        )
    return result  # type: ignore[no-any-return]
