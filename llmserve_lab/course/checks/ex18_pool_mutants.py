"""Wrong answers to 18.3 and 18.4, each by the mistake it makes. The graders must reject every
one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llmserve_lab.course.checks.ex18_pools import CountedPool
from llmserve_lab.kv_cache import OutOfBlocksError

Mutants = dict[str, Callable[..., Any]]


class Right(CountedPool):
    """A right pool with seams, for mutants to change."""

    first = 0

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.free = list(range(self.first, num_blocks))

    def allocate(self, count: int, after: int | None = None) -> list[int]:
        if count > len(self.free):
            raise OutOfBlocksError("too few")
        return self.taken(count)

    def taken(self, count: int) -> list[int]:
        return super().allocate(count)

    def places(self, block_table: list[int], start: int) -> list[int]:
        """Of shared blocks that will be written."""
        written = range(start // self.block_size, len(block_table))
        return [i for i in written if self.count[block_table[i]] > 1]


class LosesBlocksWhenShort(Right):
    def allocate(self, count: int, after: int | None = None) -> list[int]:
        blocks: list[int] = []
        while len(blocks) < count:
            if not self.free:
                raise OutOfBlocksError("too few")
            blocks += self.taken(1)
        return blocks


class GivesWhatThereIs(Right):
    def allocate(self, count: int, after: int | None = None) -> list[int]:
        return self.taken(min(count, len(self.free)))


class LeavesThemInTheList(Right):
    def allocate(self, count: int, after: int | None = None) -> list[int]:
        if count > len(self.free):
            raise OutOfBlocksError("too few")
        blocks = self.free[:count]
        for block in blocks:
            self.count[block] = 1
        return blocks


class CountsFromOne(Right):
    first = 1  # block 0 is never handed out


class KeepsOneBack(Right):
    def allocate(self, count: int, after: int | None = None) -> list[int]:
        if count >= len(self.free) and count:
            raise OutOfBlocksError("too few")
        return self.taken(count)


class CountsNothing(Right):
    def taken(self, count: int) -> list[int]:
        return [self.free.pop() for _ in range(count)]


class OneBlockForAll(Right):
    def taken(self, count: int) -> list[int]:
        return super().taken(1) * count if count else []


class AnotherError(Right):
    def allocate(self, count: int, after: int | None = None) -> list[int]:
        if count > len(self.free):
            raise MemoryError("too few")
        return self.taken(count)


class NoList(Right):
    def allocate(self, count: int, after: int | None = None) -> Any:
        blocks = super().allocate(count)
        return blocks[0] if count == 1 else blocks


class Stack(Right):
    """Takes the next block, and believes that the last ones taken come back first."""

    def taken(self, count: int) -> list[int]:
        top = self.num_blocks - len(self.free)
        self.free = self.free[count:]
        for block in range(top, top + count):
            self.count[block] = 1
        return list(range(top, top + count))

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.count[block] = 0
        top = self.num_blocks - len(self.free) - len(blocks)
        self.free = list(range(top, self.num_blocks))


class Neighbours(Right):
    """Takes a block and those after it, whoever has them."""

    def taken(self, count: int) -> list[int]:
        blocks = list(range(min(self.free), min(self.free) + count)) if count else []
        for block in blocks:
            self.free.remove(block)
            self.count[block] = 1
        return blocks


FREE_LIST: Mutants = {
    "loses the blocks it took when there are too few": LosesBlocksWhenShort,
    "gives what there is when there are too few": GivesWhatThereIs,
    "leaves the blocks in the free list": LeavesThemInTheList,
    "never hands out block 0": CountsFromOne,
    "never hands out the last free block": KeepsOneBack,
    "counts no reference": CountsNothing,
    "hands out one block several times": OneBlockForAll,
    "raises another error": AnotherError,
    "returns a single block without a list": NoList,
    "wants adjacent blocks": Neighbours,
    "takes memory for a stack": Stack,
}


class ForksWithoutCounting(Right):
    def share(self, blocks: Iterable[int]) -> None:
        pass


class FreesAtOnce(Right):
    """Whoever ends first takes the block with it."""

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if self.count[block] == 0:
                raise ValueError("free already")
            self.count[block] = 0
            self.free.append(block)


class NoticesNoDoubleFree(Right):
    def release(self, blocks: Sequence[int]) -> None:
        super().release([block for block in blocks if self.count[block]])


class FreesTwice(Right):
    """Appends the block again, whatever its count was."""

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.count[block] = max(0, self.count[block] - 1)
            if self.count[block] == 0:
                self.free.append(block)


class RevivesWithoutTaking(Right):
    """A shared free block stays in the free list."""

    def share(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.count[block] += 1


class NeverFreesShared(Right):
    """What was shared once is never handed out again."""

    def release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if self.count[block] == 0:
                raise ValueError("free already")
            last = self.count[block] == 1
            self.count[block] -= 1
            if last and block not in self.shared:
                self.free.append(block)

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.shared: set[int] = set()

    def share(self, blocks: Iterable[int]) -> None:
        listed = list(blocks)
        self.shared.update(listed)
        super().share(listed)


class SharesTheFirstOnly(Right):
    def share(self, blocks: Iterable[int]) -> None:
        super().share(list(blocks)[:1])


class FreesTheLastOnly(Right):
    """Believes that only the end of a table comes back."""

    def release(self, blocks: Sequence[int]) -> None:
        super().release(blocks[-1:])


class CountedStack(Right):
    """Frees only what lies on top, and waits for the rest: blocks below are lost for a while."""

    def release(self, blocks: Sequence[int]) -> None:
        super().release(blocks)
        held = [block for block in range(self.num_blocks) if self.count[block]]
        self.free = [block for block in self.free if block > max(held, default=-1)]


COUNTED: Mutants = {
    "a fork counts no reference": ForksWithoutCounting,
    "the first to end frees the block": FreesAtOnce,
    "a double release goes unnoticed": NoticesNoDoubleFree,
    "a double release frees twice": FreesTwice,
    "a free block that is shared stays free": RevivesWithoutTaking,
    "shared blocks are never free again": NeverFreesShared,
    "shares the first block only": SharesTheFirstOnly,
    "releases the last block only": FreesTheLastOnly,
    "believes that the last taken comes back first": CountedStack,
    "loses blocks when there are too few": LosesBlocksWhenShort,
    "never hands out block 0": CountsFromOne,
}
