"""Attention read through block tables, in plain torch: gather the slots, then softmax(QK^T)V."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.attention.metadata import BatchMetadata

if TYPE_CHECKING:
    import torch


def paged_attention(
    layer: int,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: BatchMetadata,
    scaling: float,
) -> torch.Tensor:
    """Write the new tokens' KV, then let every token attend to its own request's past.

    queries: (tokens, heads, head dim); keys, values: (tokens, KV heads, head dim).
    Returns (tokens, heads, head dim). Source: Vaswani et al. 2017, section 3.2.1; grouped heads:
    Ainslie et al. 2023.
    """
    batch.cache.write(layer, batch.slot_mapping, keys, values)
    output = queries.new_empty(queries.shape)
    if batch.singles:
        output[batch.single_rows] = _singles(layer, queries, batch, scaling)
    attend_chunks(layer, queries, batch, scaling, output)
    return output


def prepare() -> None:
    """Nothing needs to be made ready."""


def attend_chunks(
    layer: int,
    queries: torch.Tensor,
    batch: BatchMetadata,
    scaling: float,
    output: torch.Tensor,
) -> None:
    """Fill the rows of `output` (tokens, heads, head dim) that belong to prefill chunks."""
    for index, chunk in enumerate(batch.chunks):
        rows = slice(chunk.row, chunk.row + chunk.num_tokens)
        output[rows] = _chunk(layer, queries[rows], batch, index, scaling)


def _singles(
    layer: int, queries: torch.Tensor, batch: BatchMetadata, scaling: float
) -> torch.Tensor:
    """One query token per request, all requests at once. Returns (singles, heads, head dim)."""
    keys, values = batch.cache.read(layer, batch.single_slots)  # (singles, context, KV heads, dim)
    return _attend(
        queries[batch.single_rows].unsqueeze(2),  # (singles, heads, 1, dim)
        keys.transpose(1, 2),
        values.transpose(1, 2),
        batch.single_mask,
        scaling,
    ).squeeze(2)


def _chunk(
    layer: int, queries: torch.Tensor, batch: BatchMetadata, index: int, scaling: float
) -> torch.Tensor:
    """Several query tokens of one request. Returns (tokens, heads, head dim)."""
    keys, values = batch.cache.read(layer, batch.chunk_slots[index])
    return (
        _attend(
            queries.transpose(0, 1)[None],  # (1, heads, tokens, dim)
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            batch.chunk_masks[index][None, None],
            scaling,
        )
        .squeeze(0)
        .transpose(0, 1)
    )


def _attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """(batch, heads, queries, dim) against (batch, KV heads, context, dim)."""
    from torch.nn.functional import scaled_dot_product_attention

    grouped = queries.shape[1] != keys.shape[1]
    return scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, scale=scaling, enable_gqa=grouped
    )
