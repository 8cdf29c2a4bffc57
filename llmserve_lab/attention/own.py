"""An attention that the caller brings along, such as a learner's: one token, read through its block
table (PagedAttention, Kwon et al. 2023, section 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llmserve_lab.attention.metadata import BatchMetadata
from llmserve_lab.kv_cache import KVCache, PagedKVCache

if TYPE_CHECKING:
    import torch

# (query, key_blocks, value_blocks, block_table, num_tokens, scale) to the query's shape
OneToken = Callable[
    ["torch.Tensor", "torch.Tensor", "torch.Tensor", list[int], int, float], "torch.Tensor"
]


class OwnAttention:
    """A backend that asks `attend(query, key_blocks, value_blocks, block_table, num_tokens, scale)`
    for each token of a layer, one by one.

    query: (heads, head dim), of the last of `num_tokens` tokens of its request. key_blocks,
    value_blocks: (blocks, block size, KV heads, head dim), all that the layer keeps of anybody.
    block_table: the request's physical blocks in order; it may have more than `num_tokens` fill.
    scale: what scores are multiplied with. Returns (heads, head dim) in the query's dtype.

    Slots that nobody has written hold NaN, so that reading one shows in the result.

    Raises:
        ValueError: a quantized cache, or a model whose attention needs more than this (`needs`).
    """

    def __init__(
        self, attend: OneToken, cache: KVCache, needs: frozenset[str] = frozenset()
    ) -> None:
        if not isinstance(cache, PagedKVCache):
            raise ValueError(
                "A quantized KV cache has codes in its blocks, not keys and values: leave out "
                "kv_cache_dtype, or attention."
            )
        if needs:
            raise ValueError(
                f"This model's attention has {', '.join(sorted(needs))}, which attention= is not "
                "told of: leave it out."
            )
        self.attend = attend
        for part in cache.by_block():
            part.fill_(float("nan"))

    def __call__(
        self,
        layer: int,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        batch: BatchMetadata,
        scaling: float,
    ) -> torch.Tensor:
        """As `reference.paged_attention`."""
        cache = batch.cache
        assert isinstance(cache, PagedKVCache)
        cache.write(layer, batch.slot_mapping, keys, values)
        key_blocks, value_blocks = (
            kind[layer].unflatten(0, (-1, cache.block_size))[:-1]  # without the null block
            for kind in (cache.keys, cache.values)
        )
        output = queries.new_empty(queries.shape)
        for segment in batch.segments:
            for place in range(segment.num_tokens):
                row, seen = segment.row + place, segment.start + place + 1
                table = list(segment.block_table)
                result = self.attend(queries[row], key_blocks, value_blocks, table, seen, scaling)
                output[row] = _checked(result, queries[row], seen, layer)
        return output


def _checked(result: Any, query: torch.Tensor, num_tokens: int, layer: int) -> torch.Tensor:
    """What came, if it is a row of values for each head."""
    import torch

    where = f"for token {num_tokens - 1} in layer {layer}"
    if not isinstance(result, torch.Tensor):
        raise TypeError(
            f"attention returned {type(result).__name__} {where}: return a tensor of shape "
            f"{tuple(query.shape)}."
        )
    if result.shape != query.shape or result.dtype != query.dtype:
        raise ValueError(
            f"attention returned {result.dtype} of shape {tuple(result.shape)} {where}: return "
            f"{query.dtype} of shape {tuple(query.shape)}, as the query has."
        )
    if bool(result.isnan().any()):
        raise ValueError(
            f"attention returned NaN {where}: read only the {num_tokens} slots that are written; "
            "a weight of 0 does not remove what an unwritten slot holds."
        )
    return result
