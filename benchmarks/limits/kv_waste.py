"""KV slots that are held and empty, measured, and what to expect.

Only a request's last block is partly empty: by (block size - 1) / 2 slots on average, if every
remainder is as likely as any other. So waste = e / (t + e), with e that number and t the tokens
that a request holds on average, over requests and steps.
"""

from __future__ import annotations

from llmserve_lab.engine.kv_use import KVUse
from llmserve_lab.engine.trace import Trace

BLOCK_SIZES = (16, 8)


def waste_of(trace: Trace) -> dict[str, float]:
    """ "block_size", "tokens_held" (mean of a request), and waste: "measured", "expected", and the
    "least" that blocks of this size allow for what the requests held. No block may be shared."""
    use, size = KVUse.of(trace), trace[0].block_size
    held = [
        request.num_computed_tokens
        for step in trace
        for request in (*step.running, *step.finished)
        if request.num_computed_tokens
    ]
    mean = use.used / len(held)
    return {
        "block_size": size,
        "tokens_held": mean,
        "measured": use.waste,
        "least": KVUse.least(held, size).waste,
        "expected": expected(size, mean),
    }


def expected(block_size: int, tokens_held: float) -> float:
    empty = (block_size - 1) / 2
    return empty / (tokens_held + empty)


def tokens_for(waste: float, block_size: int) -> float:
    """How many tokens a request must hold on average for no more than this waste."""
    empty = (block_size - 1) / 2
    return empty * (1 - waste) / waste
