"""KV slots that are held and empty, measured, and what to expect.

Only a request's last block is partly empty: by (block size - 1) / 2 slots on average, if every
remainder is as likely as any other. So waste = e / (t + e), with e that number and t the tokens
that a request holds on average, over requests and steps.
"""

from __future__ import annotations

from typing import Any

from llmserve_lab.engine.kv_use import KVUse
from llmserve_lab.engine.trace import Trace

BLOCK_SIZES = (16, 8)


def waste_of(trace: Trace) -> dict[str, float]:
    """ "block_size", "tokens_held" (mean of a request), "measured" and "expected" waste. No block
    may be shared."""
    use = KVUse.of(trace)
    size = trace[0].block_size
    holders = sum(
        1 for step in trace for r in (*step.running, *step.finished) if r.num_computed_tokens
    )
    held = use.used / holders
    return {
        "block_size": size,
        "tokens_held": held,
        "measured": use.waste,
        "expected": expected(size, held),
    }


def expected(block_size: int, tokens_held: float) -> float:
    empty = (block_size - 1) / 2
    return empty / (tokens_held + empty)


def tokens_for(waste: float, block_size: int) -> float:
    """How many tokens a request must hold on average for no more than this waste."""
    empty = (block_size - 1) / 2
    return empty * (1 - waste) / waste


def measure(serve: Any) -> list[dict[str, float]]:
    """serve(block_size): runs the workload and returns its trace."""
    return [waste_of(serve(size)) for size in BLOCK_SIZES]
