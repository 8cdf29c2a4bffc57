"""A hint to the processor, for kernels that know what they will read.

A processor fetches ahead by itself while a program reads on in a straight line, up to the end of a
page of memory; where the next page of keys lies, the block table knows.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

CACHE_LINE = 64  # bytes
TO_READ, KEEP_CLOSE, DATA = 0, 3, 1  # llvm.prefetch's arguments (LLVM language reference)


def _fetch(typing_context: Any, array: Any, index: Any) -> Any:
    """In a kernel: fetch(array, (i, j, k)) lets the cache line of that element come meanwhile."""
    signature = types.void(array, index)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, places = signature.args
        data = context.make_array(kind)(context, builder, arguments[0])
        indices = cgutils.unpack_tuple(builder, arguments[1], count=len(places))
        place = cgutils.get_item_pointer(context, builder, kind, data, indices, wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        of = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        hint = cgutils.get_or_insert_function(builder.module, of, "llvm.prefetch.p0")
        options = [number(option) for option in (TO_READ, KEEP_CLOSE, DATA)]
        builder.call(hint, [builder.bitcast(place, byte), *options])
        return context.get_dummy_value()

    return signature, build


fetch: Any = intrinsic(_fetch)
