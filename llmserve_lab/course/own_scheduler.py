"""What a learner's scheduler is written on: a few words, each with one meaning."""

from __future__ import annotations

from llmserve_lab.engine.errors import SchedulerError
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled, Scheduler

MOST_CALLS = 10_000  # for blocks, within one step


class OwnScheduler(Scheduler):
    """A scheduler to write: subclass it, override `plan`, and pass it to an engine, as in
    `LLM(..., scheduler=Mine())`. A plan has:

    - `self.waiting` and `self.running`: requests, the one that came first at index 0
    - `self.limits.max_num_seqs`, `self.limits.max_num_batched_tokens`: of a step
    - `request.num_uncomputed_tokens`: a whole prompt at first, 1 while the request decodes
    - `self.grow(request, count)`: blocks for `count` more tokens; False, and nothing done, if too
      few are free
    - `self.start(request)`: moves a waiting request to the end of `running`
    - `self.send_back(request)`: takes all blocks of a running request, and moves it to the front of
      `waiting`; it starts from its first token again
    - `self.part(request, count)`: the entry of a step that runs its next `count` tokens
    """

    can_fork = False
    _calls = 0

    def schedule(self) -> list[Scheduled]:
        self.preempted, self._calls = [], 0
        return self.plan()

    def plan(self) -> list[Scheduled]:
        """The next step: a list of `part`s, at most one for each request."""
        raise NotImplementedError("write plan()")

    def grow(self, request: Request, count: int) -> bool:
        """Blocks for `count` more tokens, or none.

        Raises:
            SchedulerError: asked endlessly within one step.
        """
        self._calls += 1
        if self._calls > MOST_CALLS:
            raise SchedulerError("plan() asks for blocks endlessly in one step: end its loop.")
        return self._grow(request, request.num_computed_tokens + count)

    def start(self, request: Request) -> None:
        """Let a waiting request run from now on."""
        self.waiting.remove(request)
        self._enter(request)

    def send_back(self, request: Request) -> None:
        """Let a running request give up its blocks and wait again, before all others."""
        self._preempt(request)

    def part(self, request: Request, count: int) -> Scheduled:
        """The next `count` tokens of a request."""
        return Scheduled(request, request.num_computed_tokens, count)
