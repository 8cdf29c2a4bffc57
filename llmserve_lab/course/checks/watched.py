"""A scheduler that is watched while it plans: nobody starves, and who runs goes on."""

from __future__ import annotations

from collections import Counter
from typing import Any

from llmserve_lab.course.own_scheduler import OwnScheduler
from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.request import Request


class RuleBroken(Exception):
    """A step that the engine would run, but that breaks a rule of the exercise."""


def watched(kind: type[OwnScheduler]) -> OwnScheduler:
    """A scheduler of this kind that raises `RuleBroken` in the step that breaks a rule. To the
    engine it is a stranger's, so that it looks at its blocks too."""
    return type(kind.__name__, (_Watched, kind), {"__module__": "answer"})()


class _Watched(OwnScheduler):
    """Looks at each plan; the rules are told in the words of the exercise."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0
        self._started: set[str] = set()
        self._overtaken: Counter[str] = Counter()

    def schedule(self) -> list[Scheduled]:
        before = list(self.running)
        batch = super().schedule()
        self._number += 1
        if isinstance(batch, list) and all(type(item) is Scheduled for item in batch):
            self._require_all_go_on(before, batch)
            self._require_turns(batch)
        return batch

    def _require_all_go_on(self, before: list[Request], batch: list[Scheduled]) -> None:
        chosen = {item.request for item in batch}
        left = self.limits.max_num_batched_tokens - sum(item.num_tokens for item in batch)
        for request in before:
            if left > 0 and request in self.running and request not in chosen:
                raise RuleBroken(
                    f"in step {self._number} request {_name(request)} was running, but gets no "
                    f"token, although {left} more would fit: who runs goes on in every step"
                )

    def _require_turns(self, batch: list[Scheduled]) -> None:
        """Nobody who waits may see more others start than there are places."""
        new = [item.request for item in batch if item.request.request_id not in self._started]
        self._started |= {request.request_id for request in new}
        old = [request for request in self.waiting if request.request_id not in self._started]
        for request in old:
            later = sum(_number(other) > _number(request) for other in new)
            self._overtaken[request.request_id] += later
            if self._overtaken[request.request_id] > self.limits.max_num_seqs:
                raise RuleBroken(
                    f"request {_name(request)} still waits in step {self._number}, while "
                    f"{self._overtaken[request.request_id]} that came after it were started: it "
                    "starves"
                )


def _number(request: Request) -> int:
    return int(request.request_id.rpartition("-")[2])


def _name(request: Any) -> str:
    return f"{_number(request)} (a prompt of {request.num_prompt_tokens} tokens)"
