"""Wrong answers to 18.5, each by the mistake it makes. The grader must reject every one."""

from __future__ import annotations

from llmserve_lab.course.checks.ex18_pool_mutants import (
    ForksWithoutCounting,
    LosesBlocksWhenShort,
    Mutants,
    Right,
)


class WritesInPlace(Right):
    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        return []


class CopiesAlways(Right):
    """Also what nobody else holds."""

    def places(self, block_table: list[int], start: int) -> list[int]:
        return list(range(start // self.block_size, len(block_table)))


class CopiesTheWholeTable(Right):
    """Also blocks that are only read."""

    def places(self, block_table: list[int], start: int) -> list[int]:
        return super().places(block_table, 0)


class OneBlockTooLate(Right):
    def places(self, block_table: list[int], start: int) -> list[int]:
        return super().places(block_table, start + self.block_size)


class RoundsUp(Right):
    """The block in which the start lies is taken for full."""

    def places(self, block_table: list[int], start: int) -> list[int]:
        return super().places(block_table, -(-start // self.block_size) * self.block_size)


class TellsNoCopies(Right):
    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        super().make_writable(block_table, start)
        return []


class TheWrongWayRound(Right):
    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        copies = super().make_writable(block_table, start)
        return [(destination, source) for source, destination in copies]


class KeepsTheSource(Right):
    """Takes its own block and still counts as an owner of the old one."""

    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        copies = []
        for index in self.places(block_table, start):
            (fresh,) = self.allocate(1)
            copies.append((block_table[index], fresh))
            block_table[index] = fresh
        return copies


class GivesUpBeforeItHas(Right):
    """Releases the shared blocks first; if none is free, the request has lost them."""

    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        copies = []
        for index in self.places(block_table, start):
            source = block_table[index]
            self.release([source])
            (block_table[index],) = self.allocate(1)
            copies.append((source, block_table[index]))
        return copies


class LeavesTheTable(Right):
    def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
        return super().make_writable(list(block_table), start)


def _with_places(kind: type[Right]) -> type[Right]:
    """Copies exactly the blocks at the mutant's `places`."""

    class Copying(kind):  # type: ignore[misc, valid-type]
        def make_writable(self, block_table: list[int], start: int) -> list[tuple[int, int]]:
            places = self.places(block_table, start)
            fresh = self.allocate(len(places))
            copies = [(block_table[i], block) for i, block in zip(places, fresh, strict=True)]
            for index, block in zip(places, fresh, strict=True):
                block_table[index] = block
            self.release([source for source, _ in copies])
            return copies

    return Copying


MY_POOL: Mutants = {
    "writes into shared blocks": WritesInPlace,
    "copies what is its own": _with_places(CopiesAlways),
    "copies what is only read": _with_places(CopiesTheWholeTable),
    "begins one block too late": _with_places(OneBlockTooLate),
    "takes a block begun for a full one": _with_places(RoundsUp),
    "does not say what to copy": TellsNoCopies,
    "source and destination swapped": TheWrongWayRound,
    "stays an owner of the source": KeepsTheSource,
    "gives its block up before it has another": GivesUpBeforeItHas,
    "leaves the table as it was": LeavesTheTable,
    "a fork counts no reference": ForksWithoutCounting,
    "loses blocks when there are too few": LosesBlocksWhenShort,
}
