"""A load on a block pool, as an engine makes it: requests that come, grow, part and end."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

from llmserve_lab.course.checks.result import describe
from llmserve_lab.kv_cache import BlockAllocator, BlockPool, OutOfBlocksError

Operation = tuple[Any, ...]  # a name of a method of PoolLoad, and its arguments
UNWRITTEN = None
AGAIN, REVIVE = "release_again", "revive"


class Fault(Exception):
    """What a pool did wrong, as the end of a sentence."""


class PoolLoad:
    """Keeps a token in every slot: whatever the pool does, each request must read its own tokens
    through its table, and each block must have as many references as requests that hold it."""

    def __init__(self, pool: BlockAllocator) -> None:
        self.pool = pool
        self.tables: dict[str, list[int]] = {}
        self.texts: dict[str, list[int]] = {}
        self.ended: dict[str, list[int]] = {}  # tables of requests that are gone
        self._memory: list[list[Any]] = [
            [UNWRITTEN] * pool.block_size for _ in range(pool.num_blocks)
        ]
        self._count = 0  # tokens so far, each another one

    def play(self, operation: Operation) -> None:
        """Carry out one operation, then look at every block.

        Raises:
            Fault: the pool did something wrong. Its own errors come through.
        """
        name, *arguments = operation
        getattr(self, name)(*arguments)
        self.audit()

    def admit(self, name: str, num_tokens: int) -> None:
        """A new request, if it finds room."""
        self.tables[name], self.texts[name] = [], []
        if not self._extend(name, num_tokens):
            del self.tables[name], self.texts[name]

    def grow(self, name: str, num_tokens: int) -> None:
        """More tokens for a request, if there is room."""
        self._extend(name, num_tokens)

    def fork(self, name: str, fork: str) -> None:
        """A second request goes on from the same tokens."""
        self.tables[fork] = self.pool.fork(self.tables[name])
        self.texts[fork] = list(self.texts[name])

    def end(self, name: str) -> None:
        """A request is done, or was aborted."""
        self.ended[name] = list(self.tables[name])
        del self.texts[name]
        self.pool.release(self.tables.pop(name))

    def release_again(self, name: str) -> None:
        """Its blocks, all free by now, are given back once more: that is an error to report."""
        block = self.ended[name][0]
        try:
            self.pool.release(list(self.ended[name]))
        except ValueError:
            return
        raise Fault(f"expected a ValueError, since block {block} is free already; none was raised")

    def revive(self, name: str) -> None:
        """A new request finds the blocks of one that is gone, all free by now, and shares them."""
        self.tables[name] = list(self.ended[name])
        self.texts[name] = self._read(name)
        self.pool.share(list(self.ended[name]))

    def is_alone(self, name: str) -> bool:
        """Whether the request shares no block with another."""
        others = [table for key, table in self.tables.items() if key != name]
        return not any(set(table).intersection(self.tables[name]) for table in others)

    def audit(self) -> None:
        """Raise Fault where a block is not accounted for, or a request reads another's tokens."""
        held = Counter(block for table in self.tables.values() for block in table)
        for block in range(self.pool.num_blocks):
            found = self.pool.num_refs(block)
            if found != held[block]:
                raise Fault(f"expected num_refs({block}) to be {held[block]}, got {found}")
        free = self.pool.num_blocks - len(held)
        if self.pool.num_free != free:
            raise Fault(f"expected num_free to be {free}, got {self.pool.num_free}")
        for name, text in self.texts.items():
            if self._read(name)[: len(text)] != text:
                raise Fault(
                    f"expected request {name!r} to read its own tokens, but somebody wrote into "
                    f"its blocks {self.tables[name]}"
                )

    def _extend(self, name: str, num_tokens: int) -> bool:
        table, text, pool = self.tables[name], self.texts[name], self.pool
        missing = pool.blocks_for(len(text) + num_tokens) - len(table)
        shared = self._shared(name)
        free = pool.num_blocks - len({b for each in self.tables.values() for b in each})
        if missing + shared > free:
            self._must_refuse(name, shared, missing, free)
            return False
        self._copy(name, shared)
        table += self._allocated(missing, table[-1] if table else None)
        for position in range(len(text), len(text) + num_tokens):
            block, offset = table[position // pool.block_size], position % pool.block_size
            self._memory[block][offset] = self._count
            text.append(self._count)
            self._count += 1
        return True

    def _shared(self, name: str) -> int:
        """Blocks that the request will write into and that others hold too."""
        written = self.tables[name][len(self.texts[name]) // self.pool.block_size :]
        others = [table for key, table in self.tables.items() if key != name]
        return sum(any(block in table for table in others) for block in written)

    def _copy(self, name: str, shared: int) -> None:
        """Copy-on-write, as the engine does it before every write."""
        table, before = self.tables[name], list(self.tables[name])
        copies = self.pool.make_writable(table, len(self.texts[name]))
        if type(copies) is not list or any(type(pair) is not tuple for pair in copies):
            raise Fault(
                "expected a list of (source, destination) tuples from make_writable, got "
                f"{describe(copies)}"
            )
        replaced = [(a, b) for a, b in zip(before, table, strict=True) if a != b]
        if len(copies) != shared or sorted(copies) != sorted(replaced):
            raise Fault(
                f"expected {shared} of the table's blocks {before} to be replaced, each with its "
                f"(source, destination); got {copies} and the table {table}"
            )
        for source, destination in copies:
            self._memory[destination] = list(self._memory[source])

    def _allocated(self, count: int, after: int | None) -> list[int]:
        """What `allocate` returned, if these are free blocks."""
        taken = self.pool.allocate(count, after)
        if type(taken) is not list or any(type(block) is not int for block in taken):
            raise Fault(f"expected a list of {count} ints from allocate, got {describe(taken)}")
        held = {block for table in self.tables.values() for block in table}
        if len(taken) != count or len(set(taken)) != count:
            raise Fault(f"expected {count} different blocks from allocate, got {taken}")
        for block in taken:
            if not 0 <= block < self.pool.num_blocks or block in held:
                raise Fault(f"expected free blocks from allocate, but {block} is not one")
        return taken

    def _must_refuse(self, name: str, shared: int, missing: int, free: int) -> None:
        """Too few blocks are free: nothing may change."""
        before = list(self.tables[name])
        wanted = shared if shared > free else missing + shared
        with suppress(OutOfBlocksError):
            if shared > free:
                self.pool.make_writable(self.tables[name], len(self.texts[name]))
            else:
                self.pool.allocate(wanted)
            raise Fault(
                f"expected an OutOfBlocksError (wanted: {wanted}, free: {free}), but none was "
                "raised"
            )
        if self.tables[name] != before:
            raise Fault(f"expected the table {before} as it was, since blocks ran out")

    def _read(self, name: str) -> list[Any]:
        return [token for block in self.tables[name] for token in self._memory[block]]


def random_load(
    rng: Random, num_blocks: int, block_size: int, kinds: str, length: int
) -> list[Operation]:
    """`length` or a few more operations of these kinds (methods of `PoolLoad`, separated by spaces)
    that make sense one after the other, whichever blocks a pool hands out; then all requests end,
    and one comes that needs every block."""
    load = PoolLoad(BlockPool(num_blocks, block_size))
    operations: list[Operation] = []
    while len(operations) < length:
        for operation in _drawn(rng, load, rng.choice(kinds.split()), f"r{len(operations)}"):
            load.play(operation)
            operations.append(operation)
    for name in rng.sample(sorted(load.tables), len(load.tables)):
        load.play(("end", name))
        operations.append(("end", name))
    return [*operations, ("admit", "last", num_blocks * block_size)]


def _drawn(rng: Random, load: PoolLoad, kind: str, fresh: str) -> list[Operation]:
    """Operations of this kind, if there is a request for them."""
    size, alive = load.pool.block_size, sorted(load.tables)
    if kind == "admit":
        return [(kind, fresh, rng.randint(1, 3 * size))]
    if kind in (AGAIN, REVIVE):  # at once, before anybody else has the blocks
        alive = [name for name in alive if load.is_alone(name)]
    if not alive:
        return []
    name = rng.choice(alive)
    drawn: dict[str, list[Operation]] = {
        "grow": [("grow", name, rng.randint(1, 2 * size))],
        "fork": [("fork", name, fresh)],
        "end": [("end", name)],
        AGAIN: [("end", name), (AGAIN, name)],
        REVIVE: [("end", name), (REVIVE, name)],
    }
    return drawn[kind]
