"""Free blocks, and which of them to hand out next."""

from __future__ import annotations

from collections import OrderedDict

RUN_LENGTHS = (16, 8, 4, 2)  # blocks; room for a sequence to grow in, the largest first


class FreeBlocks:
    """Blocks that nobody holds: blank ones, and cached ones whose content may still be reused.

    Blank ones go first. A sequence gets the block after its last one where that is free; else it
    starts on an aligned run of blank blocks, so that it can go on there while others grow elsewhere
    (after the reservations for superpages: Navarro et al. 2002). Cached ones go least recently used
    first. Every operation is O(1) per block.
    """

    def __init__(self, num_blocks: int) -> None:
        self._blank: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._runs = [AlignedRuns(num_blocks, length) for length in RUN_LENGTHS]

    def __len__(self) -> int:
        return len(self._blank) + len(self._cached)

    def __contains__(self, block: int) -> bool:
        return block in self._blank or block in self._cached

    def cached(self) -> tuple[int, ...]:
        """The blocks with content, least recently used first."""
        return tuple(self._cached)

    def take(self, after: int | None = None) -> int:
        """Remove and return a block, if possible the one after `after`. There must be one."""
        if not self._blank:
            return self._cached.popitem(last=False)[0]
        block = self._choose(after)
        self.remove(block)
        return block

    def remove(self, block: int) -> None:
        """Take out this block, if it is here."""
        if block in self._cached:
            del self._cached[block]
        elif block in self._blank:
            del self._blank[block]
            for runs in self._runs:
                runs.remove(block)

    def add(self, block: int, cached: bool) -> None:
        """Take a block in; `cached` ones as the most recently used."""
        if cached:
            self._cached[block] = None
            return
        self._blank[block] = None
        self._blank.move_to_end(block, last=False)
        for runs in self._runs:
            runs.add(block)

    def _choose(self, after: int | None) -> int:
        if after is not None and after + 1 in self._blank:
            return after + 1
        for runs in self._runs:
            if runs.whole:
                return runs.first()
        return next(iter(self._blank))


class AlignedRuns:
    """The runs of `length` blocks that start at a multiple of it; `whole` are all blank."""

    def __init__(self, num_blocks: int, length: int) -> None:
        self.length = length
        starts = range(0, num_blocks, length)
        self._sizes = [min(length, num_blocks - start) for start in starts]
        self._blank = list(self._sizes)
        self.whole: OrderedDict[int, None] = OrderedDict.fromkeys(range(len(starts)))

    def first(self) -> int:
        """The first block of a whole run."""
        return next(iter(self.whole)) * self.length

    def add(self, block: int) -> None:
        run = block // self.length
        self._blank[run] += 1
        if self._blank[run] == self._sizes[run]:
            self.whole[run] = None
            self.whole.move_to_end(run, last=False)

    def remove(self, block: int) -> None:
        run = block // self.length
        self._blank[run] -= 1
        self.whole.pop(run, None)
