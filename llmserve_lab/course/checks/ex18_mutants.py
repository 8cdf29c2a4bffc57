"""Wrong answers to 18.1 and 18.2, each by the mistake it makes. The graders must reject every
one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Mutants = dict[str, Callable[..., Any]]


def _gather(blocks: Any, block_table: list[int], num_tokens: int, more: int = 0) -> Any:
    return blocks[block_table].flatten(0, 1)[: num_tokens + more].clone()


def _slot_by_slot_off(blocks: Any, block_table: list[int], num_tokens: int) -> Any:
    """Offsets count from 1."""
    import torch

    size = blocks.shape[1]
    rows = [blocks[block_table[p // size], (p + 1) % size] for p in range(num_tokens)]
    return torch.stack(rows)


GATHER: Mutants = {
    "ignores the table": lambda blocks, table, n: blocks.flatten(0, 1)[:n].clone(),
    "reads the last block to its end": lambda blocks, table, n: blocks[table].flatten(0, 1),
    "one token too many": lambda blocks, table, n: _gather(blocks, table, n, 1),
    "one token too few": lambda blocks, table, n: _gather(blocks, table, n, -1),
    "takes the blocks in the order of memory": lambda blocks, table, n: _gather(
        blocks, sorted(table), n
    ),
    "goes through the table backwards": lambda blocks, table, n: _gather(blocks, table[::-1], n),
    "takes the first block for all": lambda blocks, table, n: _gather(
        blocks, table[:1] * len(table), n
    ),
    "takes the blocks after the first one": lambda blocks, table, n: _gather(
        blocks, [(table[0] + i) % len(blocks) for i in range(len(table))], n
    ),
    "offsets are one off": _slot_by_slot_off,
    "keeps the blocks apart": lambda blocks, table, n: blocks[table],
}


def _attention(
    *given: Any, interleaved: bool = True, over: int = -1, take: Callable[..., Any] = _gather
) -> Any:
    """A right answer, unless told otherwise. take: how keys and values are gathered."""
    import torch

    query, key_blocks, value_blocks, block_table, num_tokens, scale = given
    keys, values = (take(kind, block_table, num_tokens) for kind in (key_blocks, value_blocks))
    group = len(query) // keys.shape[1]
    if interleaved:
        keys, values = (kind.repeat_interleave(group, dim=1) for kind in (keys, values))
    else:
        keys, values = (kind.repeat(1, group, 1) for kind in (keys, values))
    scores = torch.einsum("hd,thd->ht", query, keys) * scale
    return torch.einsum("ht,thd->hd", scores.softmax(dim=over), values)


def _masked(query: Any, keys: Any, values: Any, table: list[int], n: int, scale: float) -> Any:
    """Scores of unwritten slots are -inf, so that their weight is 0; 0 x NaN is NaN."""
    import torch

    size, group = keys.shape[1], len(query) // keys.shape[2]
    keys, values = (
        kind[table].flatten(0, 1).repeat_interleave(group, dim=1) for kind in (keys, values)
    )
    scores = torch.einsum("hd,thd->ht", query, keys) * scale
    unwritten = torch.arange(len(table) * size) >= n
    return torch.einsum(
        "ht,thd->hd", scores.masked_fill(unwritten, -math.inf).softmax(dim=-1), values
    )


def _first_kv_head(*given: Any) -> Any:
    query, keys, values, *rest = given
    return _attention(query, keys[:, :, :1], values[:, :, :1], *rest)


def _own_scale(*given: Any) -> Any:
    return _attention(*given[:-1], 1 / math.sqrt(given[0].shape[-1]))


ATTENTION: Mutants = {
    "ignores the table": lambda *given: _attention(
        *given, take=lambda blocks, table, n: blocks.flatten(0, 1)[:n]
    ),
    "reads what nobody has written": lambda *given: _attention(
        *given, take=lambda blocks, table, n: blocks[table].flatten(0, 1)
    ),
    "weighs what nobody has written with 0": _masked,
    "no scale": lambda *given: _attention(*given[:-1], 1.0),
    "a scale of its own": _own_scale,
    "heads take turns with the KV heads": lambda *given: _attention(*given, interleaved=False),
    "all heads read the first KV head": _first_kv_head,
    "leaves out the token itself": lambda *given: _attention(
        *given, take=lambda blocks, table, n: _gather(blocks, table, max(1, n - 1))
    ),
    "one token too many": lambda *given: _attention(
        *given, take=lambda blocks, table, n: _gather(blocks, table, n, 1)
    ),
    "softmax over the heads": lambda *given: _attention(*given, over=0),
    "mixes the keys": lambda query, keys, values, *rest: _attention(query, keys, keys, *rest),
    "the blocks in the order of memory": lambda *given: _attention(
        *given, take=lambda blocks, table, n: _gather(blocks, sorted(table), n)
    ),
    "keeps a dimension of one query": lambda *given: _attention(*given)[None],
}
