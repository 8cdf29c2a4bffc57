"""The kernels of the triton backend: tiles of query tokens against a paged KV cache, and the sum of
what several programs found in parts of one context.

Online softmax: Milakov and Gimelshein 2018; tiles: Dao et al. 2022; parts of a context: Flash-
Decoding, Dao et al. 2023. Exponentials are powers of two, which a GPU computes natively.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["table_width", "longest", "window"])
def attend(
    queries,  # (tokens, heads, DIM)
    keys,  # (slots, KV heads, DIM), as values
    values,
    output,  # (tokens, heads, DIM)
    partial,  # (spans * longest, heads, SPLITS, DIM) float32: what each split found
    mass,  # (spans * longest, heads, SPLITS) float32: log2 of its sum of exponentials
    rows,  # (spans,) int64: a span's first row in queries
    counts,  # (spans,) int64: its tokens
    contexts,  # (spans,) int64: tokens that its last one attends to
    tables,  # (spans, table_width) int64: its block table
    table_width,
    longest,  # tokens of the longest span
    scaling,
    window,
    softcap,
    query_token_stride,
    query_head_stride,
    slot_stride,
    kv_head_stride,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads of one KV head, which read its blocks together
    GROUP_LANES: tl.constexpr,  # GROUP, rounded up to a power of two, as DIM_LANES
    DIM: tl.constexpr,
    DIM_LANES: tl.constexpr,
    TOKENS: tl.constexpr,  # query tokens of a tile
    BLOCK: tl.constexpr,  # slots of a block
    STEP: tl.constexpr,  # keys read at once
    SPLITS: tl.constexpr,
    SINGLE: tl.constexpr,  # every span is one token
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    """One tile of one span, for one KV head and one part of the context.

    Grid: (spans, tiles of the longest span, KV heads * SPLITS).
    """
    index = tl.program_id(0)
    kv_head = tl.program_id(2) // SPLITS
    split = tl.program_id(2) % SPLITS
    count = 1 if SINGLE else tl.load(counts + index)
    context = tl.load(contexts + index)
    first = tl.program_id(1) * TOKENS
    if first >= count:
        return
    lane = tl.arange(0, TOKENS * GROUP_LANES)  # a tile's rows: (token, head of the group)
    token = first + lane // GROUP_LANES
    head = kv_head * GROUP + lane % GROUP_LANES
    used = (token < count) & (lane % GROUP_LANES < GROUP)
    dims = tl.arange(0, DIM_LANES)
    kept = used[:, None] & (dims < DIM)[None, :]
    row = tl.load(rows + index) + token
    place = row[:, None] * query_token_stride + head[:, None] * query_head_stride + dims[None, :]
    query = tl.load(queries + place, mask=kept, other=0.0)
    top = tl.full([TOKENS * GROUP_LANES], float("-inf"), tl.float32)
    total = tl.zeros([TOKENS * GROUP_LANES], tl.float32)
    mixed = tl.zeros([TOKENS * GROUP_LANES, DIM_LANES], tl.float32)
    begin, end = _part(first, count, context, window, split, TOKENS, STEP, SPLITS, WINDOWED)
    for base in range(begin, end, STEP):
        position = base + tl.arange(0, STEP)
        known = position < end
        block = tl.load(tables + index * table_width + position // BLOCK, mask=known, other=0)
        slot = block.to(tl.int64) * BLOCK + position % BLOCK
        at = slot * slot_stride + kv_head * kv_head_stride
        read = known[:, None] & (dims < DIM)[None, :]  # what lies beyond may be NaN
        key = tl.load(keys + at[:, None] + dims[None, :], mask=read, other=0.0)
        value = tl.load(values + at[:, None] + dims[None, :], mask=read, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scaling
        if CAPPED:
            score = softcap * (2.0 * tl.sigmoid(2.0 * score / softcap) - 1.0)  # softcap * tanh
        ahead = (context - count + token)[:, None] - position[None, :]  # from key to query
        seen = known[None, :] & (ahead >= 0)
        if WINDOWED:
            seen = seen & (ahead < window)
        score = tl.where(seen, score * LOG2_E, float("-inf"))
        top, total, mixed = _fold(score, value, top, total, mixed)
    total = tl.where(total == 0.0, 1.0, total)  # a row that saw nothing: its mass is 2 ** -inf
    mixed = mixed / total[:, None]
    if SPLITS == 1:
        cell = row * HEADS + head
        tl.store(output + cell[:, None] * DIM + dims[None, :], mixed, mask=kept)
    else:
        cell = ((index.to(tl.int64) * longest + token) * HEADS + head) * SPLITS + split
        tl.store(partial + cell[:, None] * DIM + dims[None, :], mixed, mask=kept)
        tl.store(mass + cell, top + tl.log2(total), mask=used)


@triton.jit
def _fold(score, value, top, total, mixed):
    """Take more keys into a softmax: score (lanes, keys), value (keys, dims). top: the highest
    score so far; total: the sum of 2 ** (score - top); mixed: the values weighed by the same."""
    higher = tl.maximum(top, tl.max(score, 1))
    shift = tl.where(higher == float("-inf"), 0.0, higher)  # a lane may see none of these keys
    share = tl.exp2(score - shift[:, None])
    decay = tl.exp2(top - shift)
    found = tl.dot(share.to(value.dtype), value, input_precision="ieee")
    return higher, total * decay + tl.sum(share, 1), mixed * decay[:, None] + found


@triton.jit
def _part(
    first,
    count,
    context,
    window,
    split,
    TOKENS: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """The positions, from and to, that one split of a tile has to read: in whole steps."""
    stop = tl.minimum(context, context - count + first + TOKENS)
    start = context * 0
    if WINDOWED:
        start = tl.maximum(start, context - count + first - window + 1) // STEP * STEP
    length = tl.cdiv(tl.cdiv(stop - start, STEP), SPLITS) * STEP
    begin = start + split * length
    return begin, tl.minimum(stop, begin + length)


@triton.jit(do_not_specialize=["longest"])
def merge(
    partial,
    mass,
    output,
    rows,
    counts,
    longest,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    DIM_LANES: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLIT_LANES: tl.constexpr,
    SINGLE: tl.constexpr,
):
    """Weigh what the splits of one token and head found by their mass.

    Grid: (spans * longest, heads). The arguments are those of `attend`.
    """
    index = tl.program_id(0) // longest
    token = tl.program_id(0) % longest
    head = tl.program_id(1)
    count = 1 if SINGLE else tl.load(counts + index)
    if token >= count:
        return
    splits = tl.arange(0, SPLIT_LANES)
    dims = tl.arange(0, DIM_LANES)
    cell = (tl.program_id(0).to(tl.int64) * HEADS + head) * SPLITS + splits
    weight = tl.load(mass + cell, mask=splits < SPLITS, other=float("-inf"))
    share = tl.exp2(weight - tl.max(weight, 0))
    found = tl.load(
        partial + cell[:, None] * DIM + dims[None, :],
        mask=(splits < SPLITS)[:, None] & (dims < DIM)[None, :],
        other=0.0,
    )
    result = tl.sum(found * share[:, None], 0) / tl.sum(share, 0)
    row = tl.load(rows + index) + token
    place = (row * HEADS + head) * DIM + dims
    tl.store(output + place, result, mask=dims < DIM)
