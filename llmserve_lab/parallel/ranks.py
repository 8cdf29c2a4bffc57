"""The processes that torchrun started. Rank 0 leads: what it asks for runs in all of them."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import torch.distributed as dist

LONGEST_SILENCE = timedelta(days=365)  # of rank 0, while it has nothing to run
BROKEN = (
    "An earlier call broke off in the middle, and how far the other processes came is not known: "
    "start the script again."
)


class Twin:
    """Stands for an object of which every process has one of its own."""

    def __init__(self, number: int) -> None:
        self.number = number


class Ranks:
    """This process and the others. Functions and arguments travel pickled, so functions are those
    of a module; a `Twin` among the arguments becomes each process's own object."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo", timeout=LONGEST_SILENCE)
        self._why_not = ""  # no more orders can be given
        self._depth = 0  # of the orders that are being carried out
        self._objects: dict[int, Any] = {}
        self._numbers = count()
        self._unused: deque[int] = deque()  # objects whose twin nobody holds any more

    @property
    def together(self) -> bool:
        """Whether all are at the same order, so that a collective finds its partners."""
        return self._depth > 0

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(*arguments)` in every process; returns what it returned here. Nobody waits for
        the others: where it fails that process ends, and torchrun ends the rest.

        Raises:
            RuntimeError: an earlier call broke off.
        """
        return self._everywhere(Ranks._run, function, arguments)

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """As `call`, but returns what it returned in each process, by rank.

        Raises:
            RuntimeError: it failed in another process. What it raised here is raised as it is.
        """
        return self._agreed(Ranks._reply, function, arguments)

    def make(self, function: Callable[..., Any], *arguments: Any) -> Twin:
        """As `each`, but every process keeps what it returned, as long as somebody holds the twin
        that stands for it."""
        twin = Twin(next(self._numbers))
        weakref.finalize(twin, self._unused.append, twin.number)
        self._agreed(Ranks._keep, twin.number, function, arguments)
        return twin

    def own(self, twin: Twin) -> Any:
        """This process's object."""
        return self._objects[twin.number]

    def follow(self) -> None:
        """Carry out what rank 0 asks for until it ends."""
        while (order := self._exchange(None)) is not None:
            self._carry_out(*order)
        dist.destroy_process_group()

    def end(self) -> None:
        """Let the other processes end; called by rank 0."""
        if not self._why_not:
            self._exchange(None)
            self._why_not = "The processes have parted."
            dist.destroy_process_group()

    def _agreed(self, operation: Callable[..., Any], *arguments: Any) -> list[Any]:
        fault, replies = self._everywhere(operation, *arguments)
        if fault is not None:
            raise fault
        for rank, (_, text) in enumerate(replies):
            if text:
                raise RuntimeError(f"Rank {rank} failed with {text}")
        return [value for value, _ in replies]

    def _everywhere(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        if self._why_not:
            raise RuntimeError(self._why_not)
        unused = [self._unused.popleft() for _ in range(len(self._unused))]
        self._why_not = BROKEN
        self._exchange((unused, operation, arguments))
        result = self._carry_out(unused, operation, arguments)
        self._why_not = ""
        return result

    def _carry_out(
        self, unused: list[int], operation: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        for number in unused:
            self._objects.pop(number, None)
        self._depth += 1
        try:
            return operation(self, *arguments)
        finally:
            self._depth -= 1

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*(self.own(a) if isinstance(a, Twin) else a for a in arguments))

    def _keep(self, number: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        def kept() -> None:
            self._objects[number] = self._run(function, arguments)

        return self._reply(kept, ())

    def _reply(
        self, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> tuple[Exception | None, list[Any]]:
        """What it raised here, and of each process what it returned and what it raised, as text."""
        value, fault = None, None
        try:
            value = self._run(function, arguments)
        except Exception as error:
            fault = error
        replies: list[Any] = [None] * self.size
        text = "" if fault is None else f"{type(fault).__name__}: {fault}"
        dist.all_gather_object(replies, (value, text), group=self._group)
        return fault, replies

    def _exchange(self, order: Any) -> Any:
        """What rank 0 says, in all processes."""
        box = [order]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]
