"""What exercise 18 is tried on: memories with block tables, and loads on a pool."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from llmserve_lab.course.checks.grader import Arguments
from llmserve_lab.course.checks.pool_load import random_load

if TYPE_CHECKING:
    import torch

RANDOM_CASES = 5
DIGITS = 2
MOST_BLOCKS, MOST_SIZE = 6, 4  # of the memory; tokens in a block
LOAD_LENGTH = 24  # operations
UNSHARED = "admit admit grow grow end"
SHARED = "admit admit grow grow fork end release_again revive"
WRITTEN = "admit grow grow grow fork fork end"
NAN = float("nan")


def _memory(rng: random.Random, num_blocks: int, size: int, heads: int, dim: int) -> torch.Tensor:
    """(blocks, block size, heads, dim)"""
    import torch

    count = num_blocks * size * heads * dim
    values = [round(rng.uniform(-2, 2), DIGITS) for _ in range(count)]
    return torch.tensor(values).reshape(num_blocks, size, heads, dim)


def _layouts(rng: random.Random) -> list[tuple[int, int, list[int], int]]:
    """(blocks in the memory, block size, block table, tokens). In some, the table has a block more
    than the tokens fill."""
    drawn = []
    for _ in range(RANDOM_CASES):
        size, num_blocks = rng.randint(2, MOST_SIZE), rng.randint(4, MOST_BLOCKS)
        table = rng.sample(range(num_blocks), rng.randint(2, 4))
        drawn.append((num_blocks, size, table, rng.randint(1, len(table) * size)))
    return [(3, 2, [2, 0], 3), (4, 2, [3, 1, 0], 4), (4, 3, [0, 3], 5), *drawn]


def _unwritten(memory: torch.Tensor, table: list[int], num_tokens: int) -> torch.Tensor:
    """With NaN wherever this request has written nothing yet."""
    size = memory.shape[1]
    for position in range(num_tokens, len(table) * size):
        memory[table[position // size], position % size] = NAN
    return memory


def gathers(rng: random.Random) -> list[Arguments]:
    cases = []
    for num_blocks, size, table, num_tokens in _layouts(rng):
        memory = _unwritten(_memory(rng, num_blocks, size, 1, 2), table, num_tokens)
        cases.append({"blocks": memory, "block_table": table, "num_tokens": num_tokens})
    return cases


def queries(rng: random.Random) -> list[Arguments]:
    cases = []
    for index, (num_blocks, size, table, num_tokens) in enumerate(_layouts(rng)):
        kv_heads, group = ((1, 1), (2, 1), (2, 2))[index % 3]
        keys, values = (
            _unwritten(_memory(rng, num_blocks, size, kv_heads, 2), table, num_tokens)
            for _ in range(2)
        )
        query = _memory(rng, 1, 1, kv_heads * group, 2)[0, 0]
        cases.append(
            {
                "query": query,
                "key_blocks": keys,
                "value_blocks": values,
                "block_table": table,
                "num_tokens": num_tokens,
                "scale": 1 / math.sqrt(2) if index % 2 else 0.25,
            }
        )
    return cases


def _loads(rng: random.Random, kinds: str, first: list[Any]) -> list[Arguments]:
    """Hand-made loads first, on 3 blocks of 2 tokens, then random ones."""
    cases = [{"num_blocks": 3, "block_size": 2, "load": load} for load in first]
    for _ in range(RANDOM_CASES):
        num_blocks, size = rng.randint(3, MOST_BLOCKS), rng.randint(1, MOST_SIZE)
        load = random_load(rng, num_blocks, size, kinds, LOAD_LENGTH)
        cases.append({"num_blocks": num_blocks, "block_size": size, "load": load})
    return cases


def unshared(rng: random.Random) -> list[Arguments]:
    first = [
        [("admit", "a", 3), ("admit", "b", 1)],
        [("admit", "a", 4), ("admit", "b", 4), ("admit", "c", 2)],  # b finds too few
        [("admit", "a", 1), ("admit", "b", 1), ("end", "a"), ("admit", "c", 4)],
    ]
    return _loads(rng, UNSHARED, first)


def shared(rng: random.Random) -> list[Arguments]:
    three = [("admit", "a", 1), ("admit", "b", 1), ("admit", "c", 1)]
    first = [
        [("admit", "a", 3), ("end", "a"), ("admit", "b", 6)],
        [("admit", "a", 3), ("fork", "a", "b"), ("end", "a"), ("admit", "c", 2), ("end", "b")],
        [*three, ("end", "b"), ("admit", "d", 2)],
        [("admit", "a", 2), ("end", "a"), ("release_again", "a")],
        [("admit", "a", 4), ("end", "a"), ("revive", "a"), ("admit", "b", 2)],
    ]
    return _loads(rng, SHARED, first)


def written(rng: random.Random) -> list[Arguments]:
    forked = [("admit", "a", 1), ("fork", "a", "b")]
    first = [
        [*forked, ("grow", "b", 1), ("grow", "a", 1)],
        [("admit", "a", 2), ("fork", "a", "b"), ("grow", "b", 1)],  # into a block of its own
        [("admit", "a", 3), ("fork", "a", "b"), ("grow", "a", 1), ("end", "b")],
        [("admit", "a", 3), ("admit", "c", 2), ("fork", "a", "b"), ("grow", "b", 1)],  # no room
        [*forked, ("grow", "b", 5)],  # room for two blocks, not for three
    ]
    return _loads(rng, WRITTEN, first)
