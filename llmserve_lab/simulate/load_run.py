"""Feeds a workload to an engine, simulated or real, and notes what comes of it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from functools import lru_cache

from llmserve_lab.engine.core import Engine
from llmserve_lab.engine.doorbell import Doorbell
from llmserve_lab.engine.metrics import RequestMetrics
from llmserve_lab.engine.outputs import TokenEvent
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.results import metrics_of
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.simulate.clock import WaitingClock
from llmserve_lab.simulate.load_result import LoadResult, Outcome
from llmserve_lab.simulate.prompts import Prompts
from llmserve_lab.simulate.workload import Ask, Workload


class Alarm(Doorbell):
    """Ends a scheduler's waiting when the next thing happens, on the clock of the run."""

    def __init__(self, clock: WaitingClock, next_time: Callable[[], float]) -> None:
        super().__init__()
        self._clock, self._next_time = clock, next_time
        self.num_waits = 0

    def wait(self, seconds: float) -> None:
        self.num_waits += 1
        self._clock.wait_until(min(self._clock() + seconds, self._next_time()))


class LoadRun:
    """One workload on one engine. A request counts from the time it was to be sent, also where the
    engine was busy then, so that waiting is never left out (coordinated omission)."""

    def __init__(
        self,
        engine: Engine,
        clock: WaitingClock,
        prompts: Prompts,
        workload: Workload,
        first_number: int = 0,
    ) -> None:
        self._engine, self._clock, self._prompts = engine, clock, prompts
        self._pool, self._number = engine.scheduler.pool, first_number
        self._started = clock()
        self._feed = workload.feed(self._started)
        self._open: dict[str, tuple[Ask, Request]] = {}
        self._leaving: list[tuple[float, str]] = []  # a heap: when a client leaves
        self._outcomes: list[Outcome] = []
        self._num_steps = self._peak_blocks = 0

    def run(self) -> LoadResult:
        """Serve the workload to its end."""
        ordinary = self._engine.doorbell
        self._engine.doorbell = alarm = Alarm(self._clock, self._next_time)
        try:
            while self._open or self._feed.next_time < math.inf:
                self._take_in()
                if self._open:
                    self._step()
                else:
                    self._clock.wait_until(self._feed.next_time)
        finally:
            self._engine.doorbell = ordinary
            self._give_up()
        return self._result(self._num_steps - alarm.num_waits)

    def _give_up(self) -> None:
        """After an error: leave nothing behind. There is nothing to do at the end of a run."""
        for request_id in self._open:
            self._engine.abort(request_id)
        self._engine.abort_asked()

    def _result(self, num_steps: int) -> LoadResult:
        recorder = self._engine.recorder
        return LoadResult(
            tuple(self._outcomes), self._started, self._clock(), num_steps, self._pool.num_blocks,
            self._peak_blocks, None if recorder is None else recorder.trace,
        )  # fmt: skip

    def _next_time(self) -> float:
        """When the next request comes or the next client leaves that is still here."""
        while self._leaving and self._leaving[0][1] not in self._open:
            heapq.heappop(self._leaving)
        leaving = self._leaving[0][0] if self._leaving else math.inf
        return min(self._feed.next_time, leaving)

    def _take_in(self) -> None:
        now = self._clock()
        for arrival, ask in self._feed.due(now):
            if self._fits(ask):
                self._queue(ask, arrival)
            else:
                self._refuse(ask, arrival)
                self._feed.ended(now)
        while self._leaving and self._leaving[0][0] <= now:
            self._engine.abort(heapq.heappop(self._leaving)[1])

    def _fits(self, ask: Ask) -> bool:
        longest = min(ask.prompt_tokens + ask.output_tokens, self._engine.max_model_len)
        fits = self._pool.blocks_for(longest) <= self._pool.num_blocks
        return fits and ask.prompt_tokens < self._engine.max_model_len

    def _queue(self, ask: Ask, arrival: float) -> None:
        request = Request(
            self._next_id(),
            self._prompts.make(ask, self._number),
            _greedy(ask.output_tokens),
            priority=ask.priority,
        )
        self._engine.add(request, arrival)
        self._open[request.request_id] = ask, request
        if ask.abort_after < math.inf:
            heapq.heappush(self._leaving, (arrival + ask.abort_after, request.request_id))

    def _refuse(self, ask: Ask, arrival: float) -> None:
        metrics = RequestMetrics(arrival, None, (), ask.prompt_tokens)
        self._outcomes.append(Outcome(ask, self._next_id(), "error", metrics))

    def _next_id(self) -> str:
        self._number += 1
        return f"load-{self._number}"

    def _step(self) -> None:
        events = self._engine.step()
        self._num_steps += 1
        self._peak_blocks = max(self._peak_blocks, self._pool.num_used)
        for event in events:
            if event.finish_reason is not None:
                self._end(event)
        self._engine.wait()

    def _end(self, event: TokenEvent) -> None:
        ask, request = self._open.pop(event.request_id)
        reason = event.finish_reason or ""
        self._outcomes.append(Outcome(ask, request.request_id, reason, metrics_of(request)))
        self._feed.ended(self._clock())


@lru_cache(maxsize=1024)
def _greedy(max_tokens: int) -> SamplingParams:
    """The likeliest tokens, to the full length."""
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
