"""Exercise 16's right answers: chained block hashes, and what may be shared."""

from __future__ import annotations

from llmserve_lab.course.block_hash import BlockHash
from llmserve_lab.course.own_prefix import Entry, Table


def full_blocks(tokens: list[int], size: int) -> list[list[int]]:
    return [tokens[i : i + size] for i in range(0, len(tokens) - size + 1, size)]


def keys(tokens: list[int], size: int, salt: str, h: BlockHash) -> list[int]:
    found: list[int] = []
    before: int | str = salt
    for block in full_blocks(tokens, size):
        before = h(before, block)
        found.append(before)
    return found


def longest(wanted: list[int], table: Table) -> list[int]:
    blocks: list[int] = []
    for key in wanted:
        if key not in table:
            break
        blocks.append(table[key].block)
    return blocks


def match(tokens: list[int], size: int, salt: str, table: Table, h: BlockHash) -> list[int]:
    blocks: list[int] = []
    for index, key in enumerate(keys(tokens[:-1], size, salt, h)):
        entry = table.get(key)
        beginning = tuple(tokens[: (index + 1) * size])
        if entry is None or entry.salt != salt or entry.tokens != beginning:
            break
        blocks.append(entry.block)
    return blocks


def publish(
    table: Table, block: int, tokens: list[int], size: int, salt: str, h: BlockHash
) -> Table:
    if not tokens or len(tokens) % size:
        return dict(table)
    key = keys(tokens, size, salt, h)[-1]
    if key in table:
        return dict(table)
    return {**table, key: Entry(block, salt, tuple(tokens))}
