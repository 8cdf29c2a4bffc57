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
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Write the new tokens' KV, then let every token attend to its own request's past.

    queries: (tokens, heads, head dim); keys, values: (tokens, KV heads, head dim). window: tokens
    that each attends to, itself included. softcap: scores become softcap * tanh(scores / softcap).
    sinks: (heads,), a score of each head that takes part in the softmax and has no value.
    Returns (tokens, heads, head dim). Source: Vaswani et al. 2017, section 3.2.1; grouped heads:
    Ainslie et al. 2023; window: Beltagy et al. 2020, section 3.1; softcap: Gemma 2, section 2.
    """
    batch.cache.write(layer, batch.slot_mapping, keys, values)
    output = queries.new_empty(queries.shape)
    if batch.singles:
        output[batch.single_rows] = _singles(layer, queries, batch, scaling, window, softcap, sinks)
    attend_chunks(layer, queries, batch, scaling, output, window, softcap, sinks)
    return output


def prepare(dtype: torch.dtype) -> None:
    """Nothing needs to be made ready."""


def attend_chunks(
    layer: int,
    queries: torch.Tensor,
    batch: BatchMetadata,
    scaling: float,
    output: torch.Tensor,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """Fill the rows of `output` (tokens, heads, head dim) that belong to prefill chunks."""
    for chunk, reads in zip(batch.chunks, batch.chunk_reads(window), strict=True):
        rows = slice(chunk.row, chunk.row + chunk.num_tokens)
        keys, values = batch.cache.read(layer, reads.slots)  # (context, KV heads, dim)
        attended = _attend(
            queries[rows].transpose(0, 1)[None],  # (1, heads, tokens, dim)
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            reads.mask[None, None],
            scaling, softcap, sinks,
        )  # fmt: skip
        output[rows] = attended.squeeze(0).transpose(0, 1)


def _singles(
    layer: int,
    queries: torch.Tensor,
    batch: BatchMetadata,
    scaling: float,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """One query token per request, all requests at once. Returns (singles, heads, head dim)."""
    reads = batch.single_reads(window)
    keys, values = batch.cache.read(layer, reads.slots)  # (singles, context, KV heads, dim)
    return _attend(
        queries[batch.single_rows].unsqueeze(2),  # (singles, heads, 1, dim)
        keys.transpose(1, 2),
        values.transpose(1, 2),
        reads.mask,
        scaling, softcap, sinks,
    ).squeeze(2)  # fmt: skip


def _attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """(batch, heads, queries, dim) against (batch, KV heads, context, dim)."""
    from torch.nn.functional import scaled_dot_product_attention

    grouped = queries.shape[1] != keys.shape[1]
    if softcap is None and sinks is None:
        return scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, scale=scaling, enable_gqa=grouped
        )
    if grouped:
        times = queries.shape[1] // keys.shape[1]
        keys, values = (part.repeat_interleave(times, 1) for part in (keys, values))
    scores = queries @ keys.transpose(2, 3) * scaling
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    scores = scores.masked_fill(~mask, float("-inf"))
    return _softmax(scores, sinks) @ values


def _softmax(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Over the last dimension, in float32. scores: (batch, heads, queries, context)."""
    import torch

    if sinks is None:
        return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)
    column = sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
    shares = torch.cat((scores, column.to(scores.dtype)), -1).softmax(-1, dtype=torch.float32)
    return shares[..., :-1].to(scores.dtype)
