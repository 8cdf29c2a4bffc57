"""Grades a class of block pools: under load, every block must be accounted for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.course.checks.grader import Answer, Arguments, CheckFailed, Grader, told
from llmserve_lab.course.checks.pool_load import Fault, PoolLoad
from llmserve_lab.course.checks.result import describe
from llmserve_lab.kv_cache import BlockAllocator


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of one's own."""

    def compare(self, expected: Any, got: Any) -> str | None:
        if isinstance(got, BlockAllocator):
            return None
        return f"expected a BlockAllocator object, got {describe(got)}"


@dataclass(frozen=True, slots=True)
class PoolGrader(Grader):
    """Call it with the learner's class. A case is a size of the pool, and a load for it.

    The order in which a pool hands out its blocks is its own affair.
    """

    def _require_answer(self, answer: Any) -> None:
        __tracebackhide__ = True
        if not callable(answer):
            raise CheckFailed(
                f"Exercise {self.key}: hand over your class itself, without calling it, as in "
                f"check.{self.name}({self.reference.__name__}); got {describe(answer)}."
            )

    def _try(self, answer: Answer, arguments: Arguments) -> None:
        __tracebackhide__ = True
        operations = arguments["load"]
        done = -1
        try:
            pool = answer(arguments["num_blocks"], arguments["block_size"])
            if fault := self.shape.compare(None, pool):
                self._fail(arguments, fault)
            load = PoolLoad(pool)
            load.audit()
            for done, operation in enumerate(operations):  # noqa: B007 (told in the message)
                load.play(operation)
        except (NotImplementedError, CheckFailed):
            raise
        except Fault as fault:
            self._fail(_until(arguments, done), f"{_when(done)} {fault}")
        except (Exception, SystemExit) as error:
            happened = f"{_when(done)} expected no error, but your pool raised {told(error)}"
            self._fail(_until(arguments, done), happened, error)


def _until(arguments: Arguments, done: int) -> Arguments:
    """The case up to and with the operation that went wrong."""
    return arguments | {"load": arguments["load"][: done + 1]}


def _when(done: int) -> str:
    return "after the last of these" if done >= 0 else "when the pool is made,"
