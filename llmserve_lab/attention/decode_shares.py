"""Decode attention by several threads: each takes a share of a batch's requests, with about as many
tokens as the others', and computes it as one thread alone would."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import llvmlite.binding
import numpy
from numba import carray, types

from llmserve_lab.attention import team
from llmserve_lab.attention.cpu_kernels import decode
from llmserve_lab.attention.numba_cache import c_function, kernel

if TYPE_CHECKING:
    import torch

for name in (team.OWN_NUMBER, team.SIZE):
    llvmlite.binding.add_symbol(name, team.address_of(name))
own_number: Any = types.ExternalFunction(team.OWN_NUMBER, types.int32())
team_size: Any = types.ExternalFunction(team.SIZE, types.int32())

# What a C function is told: where a record with all numbers lies, and where the arrays lie.
NUMBERS, STARTS, QUERIES, KEYS, VALUES, TABLES, CONTEXTS, OUTPUT = range(8)
SIGNATURE = types.void(types.CPointer(types.voidptr))
COUNTS = ("shares", "rows", "heads", "dim", "slots", "kv_heads", "blocks", "block_size", "window")
RECORD = numpy.dtype([(name, "i8") for name in COUNTS] + [("scaling", "f8"), ("softcap", "f8")])


def bounds(contexts: Sequence[int], shares: int) -> list[int]:
    """Where each share begins among the requests, and their number: `shares` + 1 of them. A share
    ends with the request in which its part of all tokens is reached."""
    ends = numpy.cumsum(contexts)
    parts = ends[-1] * numpy.arange(1, shares) / shares
    return [0, *(numpy.searchsorted(ends, parts) + 1).tolist(), len(ends)]


def run(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: torch.Tensor,
    contexts: torch.Tensor,
    starts: torch.Tensor,
    block_size: int,
    scaling: float,
    window: int,
    softcap: float,
    output: torch.Tensor,
) -> None:
    """As `cpu_kernels.decode`, with contiguous tensors; starts: (shares + 1,) int64, `bounds`."""
    counts = len(starts) - 1, *queries.shape, *keys.shape[:2], tables.shape[1], block_size, window
    numbers = numpy.array([(*counts, scaling, softcap)], RECORD)
    tensors = (starts, queries, keys, values, tables, contexts, output)
    pointers = [numbers.ctypes.data, *(tensor.data_ptr() for tensor in tensors)]
    team.run(function_for(keys.dtype).address, pointers, len(starts) - 1)


@cache
def function_for(dtype: torch.dtype) -> Any:
    """Compiled, or loaded, for keys and values of this dtype."""
    is_wide = dtype.itemsize == numpy.float32().itemsize
    return c_function(SIGNATURE)(_of_float32 if is_wide else _of_bfloat16)


@kernel
def _decode_shares(
    data: Any, numbers: Any, keys: Any, values: Any
) -> None:  # pragma: no cover (compiled)
    """This thread's shares: every so-manieth, since a team may be smaller than was asked for."""
    starts = carray(data[STARTS], numbers.shares + 1, numpy.int64)
    rows = (numbers.rows, numbers.heads, numbers.dim)
    queries = carray(data[QUERIES], rows, numpy.float32)
    output = carray(data[OUTPUT], rows, numpy.float32)
    tables = carray(data[TABLES], (numbers.rows, numbers.blocks), numpy.int64)
    contexts = carray(data[CONTEXTS], numbers.rows, numpy.int64)
    for share in range(own_number(), numbers.shares, team_size()):
        own = slice(starts[share], starts[share + 1])
        decode(
            queries[own], keys, values, tables[own], contexts[own], numbers.block_size,
            numbers.scaling, numbers.window, numbers.softcap, output[own],
        )  # fmt: skip


def _of_float32(data: Any) -> None:  # pragma: no cover (compiled)
    numbers = carray(data[NUMBERS], 1, RECORD)[0]
    pool = (numbers.slots, numbers.kv_heads, numbers.dim)
    keys = carray(data[KEYS], pool, numpy.float32)
    _decode_shares(data, numbers, keys, carray(data[VALUES], pool, numpy.float32))


def _of_bfloat16(data: Any) -> None:  # pragma: no cover (compiled)
    numbers = carray(data[NUMBERS], 1, RECORD)[0]
    pool = (numbers.slots, numbers.kv_heads, numbers.dim)
    keys = carray(data[KEYS], pool, numpy.uint16)
    _decode_shares(data, numbers, keys, carray(data[VALUES], pool, numpy.uint16))
