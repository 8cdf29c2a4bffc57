"""Into how many pieces the memory of a request falls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def read_runs(block_table: Sequence[int]) -> int:
    """How many runs of adjacent blocks, in rising order, hold a request: each is one piece of
    memory that can be read in one go."""
    steps = pairwise(block_table)
    return bool(block_table) + sum(block != before + 1 for before, block in steps)
