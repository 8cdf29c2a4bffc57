"""Feeds a workload to an engine, simulated or real, and notes what comes of it."""

from __future__ import annotations

import heapq
import math

from llmserve_lab.engine.core import Engine
from llmserve_lab.engine.metrics import RequestMetrics
from llmserve_lab.engine.outputs import TokenEvent
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.results import metrics_of
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.simulate.clock import WaitingClock
from llmserve_lab.simulate.load_result import LoadResult, Outcome
from llmserve_lab.simulate.prompts import Prompts
from llmserve_lab.simulate.workload import Ask, Feed, Workload


class LoadRun:
    """One workload on one engine. A request counts from the time it was to be sent, also where the
    engine was busy then, so that waiting is never left out (coordinated omission)."""

    def __init__(
        self, engine: Engine, clock: WaitingClock, prompts: Prompts, first_number: int = 0
    ) -> None:
        self._engine, self._clock, self._prompts = engine, clock, prompts
        self._pool, self._number = engine.scheduler.pool, first_number
        self._open: dict[str, tuple[Ask, Request]] = {}
        self._leaving: list[tuple[float, str]] = []  # a heap: when a client leaves
        self._outcomes: list[Outcome] = []
        self._num_steps = self._peak_blocks = 0

    def run(self, workload: Workload) -> LoadResult:
        """Serve it to the end."""
        started = ended = self._clock()
        feed = workload.feed(started)
        while self._open or feed.next_time < math.inf:
            self._take_in(feed)
            if self._open:
                self._step(feed)
                ended = self._clock()
            else:
                self._clock.wait_until(feed.next_time)
        recorder = self._engine.recorder
        return LoadResult(
            tuple(self._outcomes), started, ended, self._num_steps, self._pool.num_blocks,
            self._peak_blocks, None if recorder is None else recorder.trace,
        )  # fmt: skip

    def _take_in(self, feed: Feed) -> None:
        now = self._clock()
        for arrival, ask in feed.due(now):
            if self._fits(ask):
                self._queue(ask, arrival)
            else:
                self._refuse(ask, arrival)
                feed.ended(now)
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
            SamplingParams(temperature=0.0, max_tokens=ask.output_tokens, ignore_eos=True),
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

    def _step(self, feed: Feed) -> None:
        began = self._clock()
        events = self._engine.step()
        self._num_steps += 1
        self._peak_blocks = max(self._peak_blocks, self._pool.num_used)
        for event in events:
            if event.finish_reason is not None:
                self._end(event)
                feed.ended(self._clock())
        if not events and self._clock() == began:
            self._idle(feed)

    def _end(self, event: TokenEvent) -> None:
        ask, request = self._open.pop(event.request_id)
        reason = event.finish_reason or ""
        self._outcomes.append(Outcome(ask, request.request_id, reason, metrics_of(request)))

    def _idle(self, feed: Feed) -> None:
        """Nothing ran: go on to the next arrival or departure, or when the scheduler wakes."""
        wake_at = getattr(self._engine.scheduler, "wake_at", None)
        times = [feed.next_time, math.inf if wake_at is None else wake_at]
        times += [time for time, _ in self._leaving[:1]]
        if min(times) < math.inf:
            self._clock.wait_until(min(times))
