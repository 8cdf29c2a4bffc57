"""The hidden cases of exercise 17: free runs in address order, and calls to an allocator."""

from __future__ import annotations

import random

from llmserve_lab.course.checks.allocator import ALLOCATE, FREE, Call
from llmserve_lab.course.checks.grader import Arguments
from llmserve_lab.kv_cache import ContiguousAllocator

Hole = tuple[int, int]  # start, length

RANDOM_CASES = 8
RANDOM_RUNS, RANDOM_CALLS = 12, 40
RANDOM_SLOTS = (12, 32)
OWNERS = "abcdefghijkl"
FREE_SHARE = 0.4  # of the random calls
LONGEST = 7  # slots of a random reservation


def reservations(rng: random.Random) -> list[Arguments]:
    fixed = [(64, 8, 20), (64, 20, 20), (16, 0, 16), (16, 16, 16), (100, 1, 30)]
    drawn = []
    for _ in range(RANDOM_CASES):
        used, final, length = sorted(rng.sample(range(1, 1000), 3))
        drawn.append((length, used, final))
    return [dict(zip(("length", "used", "final"), case, strict=True)) for case in fixed + drawn]


def _holes(rng: random.Random, count: int | None = None) -> list[Hole]:
    """Free runs in address order, none of which touch."""
    holes, position = [], rng.randint(0, 9)
    for _ in range(rng.randint(1, 6) if count is None else count):
        length = rng.randint(1, 24)
        holes.append((position, length))
        position += length + rng.randint(1, 9)
    return holes


def memories(rng: random.Random) -> list[Arguments]:
    fixed: list[list[Hole]] = [
        [(0, 24), (40, 8)],
        [],
        [(8, 16)],
        [(0, 4), (8, 4), (16, 4), (32, 4)],
        [(0, 2), (8, 30), (60, 4)],  # the largest is neither the first nor the last
    ]
    return [{"holes": holes} for holes in [*fixed, *(_holes(rng) for _ in range(RANDOM_CASES))]]


def searches(rng: random.Random) -> list[Arguments]:
    holes: list[Hole] = [(4, 6), (20, 24), (60, 8)]
    fixed = [(holes, 7), (holes, 6), (holes, 1), (holes, 24), (holes, 25)]
    fixed += [([], 1), ([(0, 8), (16, 8)], 12), ([(3, 4), (9, 9)], 5)]
    drawn = [(_holes(rng), rng.randint(1, 26)) for _ in range(RANDOM_CASES)]
    return [{"holes": held, "length": length} for held, length in fixed + drawn]


def takings(rng: random.Random) -> list[Arguments]:
    holes: list[Hole] = [(4, 6), (20, 24), (60, 8)]
    fixed = [(holes, 1, 7), (holes, 0, 6), (holes, 2, 8), (holes, 2, 1), ([(0, 5)], 0, 5)]
    drawn = []
    for _ in range(RANDOM_CASES):
        found = _holes(rng)
        index = rng.randrange(len(found))
        drawn.append((found, index, rng.randint(1, found[index][1])))
    names = ("holes", "index", "length")
    return [dict(zip(names, case, strict=True)) for case in fixed + drawn]


def returns(rng: random.Random) -> list[Arguments]:
    holes: list[Hole] = [(0, 4), (10, 6), (30, 2)]
    fixed = [
        (holes, 20, 5),  # touches none
        (holes, 16, 4),  # the one before
        (holes, 27, 3),  # the one after
        (holes, 4, 6),  # both
        (holes, 32, 8),
        (holes, 5, 4),  # one slot stays reserved on either side
        ([], 8, 4),
        ([(8, 4)], 0, 8),
    ]
    drawn = []
    for _ in range(RANDOM_CASES):
        around = _holes(rng, count=rng.randint(2, 5))
        index = rng.randrange(len(around) - 1)
        first, last = sum(around[index]), around[index + 1][0]
        start = rng.choice((first, rng.randrange(first, last)))
        drawn.append((around, start, rng.choice((last - start, rng.randint(1, last - start)))))
    names = ("holes", "start", "length")
    return [dict(zip(names, case, strict=True)) for case in fixed + drawn]


def runs(rng: random.Random) -> list[Arguments]:
    fixed: list[tuple[int, list[Call]]] = [
        (12, _script("a4 b4 c4")),  # the last fits exactly
        (12, _script("a8 b5 c4")),  # one that does not fit takes nothing
        (12, _script("a8 b5 b4")),  # and may ask again
        (12, _script("a4 b4 c4 -a d4 -c e4")),
        (12, _script("a4 b4 c4 -a -b d8")),  # the one after is joined
        (12, _script("a4 b4 c4 -b -a d8")),  # the one before
        (12, _script("a4 b4 c4 -a -c -b d12")),  # both
        (6, _script("a1 b1 c1 -a -c d2")),  # one reserved slot keeps two holes apart
        (12, _script("a4 b4 c4 -a -c d8")),  # enough in total, nowhere in one piece
        (20, _script("a8 b4 c3 d5 -a -c e3")),  # first fit, not best fit
        (20, _script("a4 b1 c8 d1 -a -c e3")),  # nor the longest hole
        (12, _script("a4 a4 b8")),  # twice the same owner
        (12, _script("a4 -a -a b12")),  # freed twice
        (12, _script("a4 -z b8")),
    ]
    drawn = []
    for _ in range(RANDOM_RUNS):
        num_slots = rng.randint(*RANDOM_SLOTS)
        drawn.append((num_slots, _random_calls(rng, num_slots)))
    return [{"num_slots": slots, "calls": calls} for slots, calls in fixed + drawn]


def _script(text: str) -> list[Call]:
    """ "a4" is allocate("a", 4), "-a" is free("a")."""
    return [
        (FREE, word[1:]) if word.startswith("-") else (ALLOCATE, word[0], int(word[1:]))
        for word in text.split()
    ]


def _random_calls(rng: random.Random, num_slots: int) -> list[Call]:
    """Mostly calls that make sense: a new owner comes, or one that holds something leaves."""
    memory = ContiguousAllocator(num_slots)
    calls: list[Call] = []
    for _ in range(RANDOM_CALLS):
        held = [region.owner for region in memory.snapshot().regions if region.owner is not None]
        owner, length = rng.choice(OWNERS), rng.randint(1, LONGEST)
        if held and rng.random() < FREE_SHARE:
            owner = rng.choice((*held, *held, owner))
            calls.append((FREE, owner))
            if owner in held:
                memory.free(owner)
            continue
        calls.append((ALLOCATE, owner, length))
        if owner not in held and length <= memory.snapshot().largest_free_run:
            memory.allocate(owner, length)
    return calls
