"""Hidden inputs of exercise 16: plain hits first, then each reason to refuse one."""

from __future__ import annotations

import random

from llmserve_lab.course.block_hash import BlockHash
from llmserve_lab.course.checks.ex16_answers import keys, publish
from llmserve_lab.course.checks.grader import Arguments
from llmserve_lab.course.own_prefix import Entry, Table

RANDOM_CASES = 5
VOCABULARY, MOST_BLOCKS, LARGEST = 90, 5, 4
SALTS = ("", "a", "b")
ONE_KEY = BlockHash(num_values=1)  # every block collides with every other
FEW, MANY = 3, 2**64  # values of a hash


def _text(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(length)]


def _filled(
    tokens: list[int], size: int, salt: str, h: BlockHash, first: int = 20, step: int = -3
) -> Table:
    """All full blocks of a text, published; physical numbers go from `first` in `step`s."""
    table: Table = {}
    for index in range(len(tokens) // size):
        beginning = tokens[: (index + 1) * size]
        table = publish(table, first + step * index, beginning, size, salt, h)
    return table


def _lengths(rng: random.Random) -> list[tuple[list[int], int]]:
    drawn = [(rng.randrange(20), rng.randint(2, LARGEST)) for _ in range(RANDOM_CASES)]
    sizes = [(4, 2), (5, 2), (1, 2), (0, 3), (9, 3), *drawn]
    return [(_text(rng, length), size) for length, size in sizes]


def splits(rng: random.Random) -> list[Arguments]:
    return [{"tokens": tokens, "size": size} for tokens, size in _lengths(rng)]


def chains(rng: random.Random) -> list[Arguments]:
    salts = ["", "", "tenant", *(rng.choice(SALTS) for _ in range(2 + RANDOM_CASES))]
    texts = zip(_lengths(rng), salts, strict=True)
    cases = [
        {"tokens": tokens, "size": size, "salt": salt, "h": BlockHash()}
        for (tokens, size), salt in texts
    ]
    twice = [7, 8, 7, 8, 9]  # equal blocks, whose keys differ
    return [*cases, {"tokens": twice, "size": 2, "salt": "tenant", "h": BlockHash()}]


def runs(rng: random.Random) -> list[Arguments]:
    """Everything there, nothing, a gap in the middle, a gap at the start, then at random."""
    text, size = _text(rng, 10), 2
    wanted, full = keys(text, size, "", BlockHash()), _filled(text, size, "", BlockHash())
    cases = [
        {"wanted": wanted, "table": kept}
        for kept in (full, {}, _without(full, wanted[2:3]), _without(full, wanted[:1]))
    ]
    cases.append({"wanted": wanted[:2], "table": full})
    cases.append({"wanted": [], "table": full})
    for _ in range(RANDOM_CASES):
        gone = rng.sample(wanted, rng.randint(1, 2))
        cases.append({"wanted": wanted, "table": _without(full, gone)})
    return cases


def _without(table: Table, gone: list[int]) -> Table:
    return {key: entry for key, entry in table.items() if key not in gone}


def lookups(rng: random.Random) -> list[Arguments]:
    """Plain hits first, then each reason to refuse one."""
    h, size = BlockHash(), 2
    text, other = [1, 2, 3, 4, 5, 6], [8, 9, 3, 4, 5, 6]
    full = _filled(text, size, "", h)
    gap = _without(full, keys(text, size, "", h)[1:2])
    salted = _filled(text, size, "a", h)
    collided = {ONE_KEY("", []): Entry(5, "", (7, 7, *text[:2]))}
    plain: list[tuple[list[int], str, Table, BlockHash]] = [
        ([*text, 7], "", {}, h),
        ([*text, 7], "", full, h),
        ([*text[:4], 9, 9, 9], "", full, h),
        (text, "", full, h),  # the last block would leave nothing to compute
        (text[:2], "", full, h),
        ([*text, 7], "", gap, h),
        ([*text, 7], "a", full, h),
        ([*text, 7], "a", salted, h),
        ([*text, 7], "", salted, h),
        ([*text, 7], "", _filled(other, size, "", ONE_KEY), ONE_KEY),  # the key is of another text
        ([*text, 7], "a", _filled(text, size, "", ONE_KEY), ONE_KEY),  # and here of another salt
        ([*text, 7], "", collided, ONE_KEY),  # here the block is the same, its beginning is not
        ([*text, 7], "", _filled(text, size, "", ONE_KEY), ONE_KEY),
        ([], "", full, h),
    ]
    cases = [_lookup(*given, size) for given in plain]
    return cases + [_random_lookup(rng) for _ in range(RANDOM_CASES)]


def _lookup(tokens: list[int], salt: str, table: Table, h: BlockHash, size: int) -> Arguments:
    return {"tokens": tokens, "size": size, "salt": salt, "table": table, "h": h}


def _random_lookup(rng: random.Random) -> Arguments:
    """Two texts that share some tokens, on a hash of few values or of many."""
    h, size = BlockHash(rng.choice([FEW, MANY])), rng.randint(2, LARGEST)
    known = _text(rng, rng.randint(1, MOST_BLOCKS) * size)
    shared = known[: rng.randint(0, len(known))]
    salt, asked = rng.choice(SALTS), rng.choice(SALTS)
    return _lookup(
        shared + _text(rng, rng.randint(1, 6)), asked, _filled(known, size, salt, h), h, size
    )


def blocks_done(rng: random.Random) -> list[Arguments]:
    """A first block, one after others, one that is not full, one whose key is taken."""
    h, size, text = BlockHash(), 2, [1, 2, 3, 4, 5, 6]
    full = _filled(text, size, "", h)
    plain: list[tuple[Table, list[int], str, BlockHash]] = [
        ({}, text[:2], "", h),
        (_filled(text[:4], size, "", h), text, "", h),
        (_filled(text[:4], size, "", h), text[:5], "", h),
        (_filled(text[:2], size, "", h), text[:3], "", h),
        ({}, text[:3], "", h),
        (full, text, "", h),
        (full, text[:4], "a", h),
        (full, [8, 9, 3, 4], "", h),
        (_filled(text[:2], size, "", ONE_KEY), [8, 9], "", ONE_KEY),
        (full, [], "", h),
    ]
    for _ in range(RANDOM_CASES):
        tokens = _text(rng, rng.randint(1, MOST_BLOCKS * size))
        held = _filled(tokens[: rng.randint(0, len(tokens))], size, "", h)
        plain.append((held, tokens, rng.choice(SALTS), h))
    return [
        {"table": t, "block": 30 + i, "tokens": tokens, "size": size, "salt": salt, "h": hashed}
        for i, (t, tokens, salt, hashed) in enumerate(plain)
    ]
