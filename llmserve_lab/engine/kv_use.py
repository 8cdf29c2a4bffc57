"""How much of the KV memory that requests hold they really use, from a trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llmserve_lab.engine.trace import StepSnapshot


@dataclass(frozen=True, slots=True)
class KVUse:
    """Slots that requests hold, and those of them with a token. A shared block counts once."""

    held: int
    used: int

    @property
    def waste(self) -> float:
        """Share of the held slots that hold no token (internal fragmentation)."""
        return 1 - self.used / self.held if self.held else 0.0

    @classmethod
    def of(cls, steps: StepSnapshot | Iterable[StepSnapshot]) -> KVUse:
        """Of one step, or the sum over several: slots x steps. Requests that end in a step still
        count in it."""
        if isinstance(steps, StepSnapshot):
            return cls._of_step(steps)
        parts = [cls._of_step(step) for step in steps]
        return cls(sum(part.held for part in parts), sum(part.used for part in parts))

    @classmethod
    def least(cls, lengths: Iterable[int], block_size: int) -> KVUse:
        """What requests that hold so many tokens each need at least in blocks, if they share none:
        only the last block of each is partly empty. For lengths that are equally likely to end
        anywhere in a block that is (block_size - 1) / 2 slots a request.

        Raises:
            ValueError: a block without slots, or a negative length.
        """
        tokens = list(lengths)
        if block_size < 1 or min(tokens, default=0) < 0:
            raise ValueError("Blocks have at least one slot, and lengths are 0 or more.")
        return cls(sum(-(-count // block_size) * block_size for count in tokens), sum(tokens))

    @classmethod
    def _of_step(cls, step: StepSnapshot) -> KVUse:
        size = step.block_size
        tokens: dict[int, int] = {}  # in each held block
        for request in (*step.running, *step.finished):
            for index, block in enumerate(request.block_table):
                here = min(size, max(0, request.num_computed_tokens - index * size))
                tokens[block] = max(here, tokens.get(block, 0))
        return cls(len(tokens) * size, sum(tokens.values()))
