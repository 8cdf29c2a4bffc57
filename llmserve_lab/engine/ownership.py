"""Whether every block belongs to the requests that use it, and the way back if not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.loans import Loans
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduler
from llmserve_lab.kv_cache import BlockAllocator

SHOWN = 3  # names in a message


def broken_rule(requests: Iterable[Request], pool: BlockAllocator) -> str | None:
    """What is wrong with the block tables, in a sentence. `requests` are all that hold blocks;
    O(blocks in use and in the pool)."""
    references = pool.refs()
    holders: dict[int, list[str]] = defaultdict(list)
    for request in requests:
        for block in request.block_table:
            wrong = _wrong_block(block, references)
            if wrong is not None:
                return f"Request {request.request_id!r} holds block {block!r}, {wrong}."
            holders[block].append(request.request_id)
    for block, names in holders.items():
        if len(names) > references[block]:
            held = " and ".join(repr(name) for name in names[:SHOWN])
            return (
                f"Block {block} is held by {held}, but was handed out {references[block]}x: "
                "allocate a block for each, or share() it."
            )
    lost = [b for b, count in enumerate(references) if count > len(holders.get(b, ()))]
    if lost:
        return f"No request holds block {lost[0]} ({len(lost)} in all): release what is given up."
    return None


def _wrong_block(block: object, references: tuple[int, ...]) -> str | None:
    if type(block) is not int or not 0 <= block < len(references):
        return f"but the pool has blocks 0 to {len(references) - 1}"
    return None if references[block] else "which is free: it was released, or never allocated"


def overwritten(item: Scheduled, pool: BlockAllocator, loans: Loans) -> int | None:
    """A block that this item would write into and that others read too, except those who do so
    because it is written now."""
    first = item.start // pool.block_size
    for block in item.request.block_table[first : pool.blocks_for(item.start + item.num_tokens)]:
        references = pool.num_refs(block)
        if references > 1 and references > 1 + loans.num_readers(block):
            return block
    return None


def repair(scheduler: Scheduler, requests: dict[str, Request]) -> None:
    """After a scheduler failed half-way: if blocks are lost or held twice, everybody starts over,
    with no block and nothing computed. A pool that is broken itself cannot be repaired; then the
    first error is the one to tell."""
    if broken_rule(requests.values(), scheduler.pool) is not None:
        with suppress(Exception):
            scheduler.start_over(requests.values())
