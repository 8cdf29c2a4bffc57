"""The loop itself: schedule, run, sample, commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from llmserve_lab.engine.detokenizer import Detokenizer
from llmserve_lab.engine.outputs import TokenEvent
from llmserve_lab.engine.recorder import Recorder, view
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.runner import ModelRunner
from llmserve_lab.engine.sampler import Sampler
from llmserve_lab.engine.scheduler import Scheduled, Scheduler
from llmserve_lab.engine.trace import RequestView
from llmserve_lab.engine.validate import validate

Clock = Callable[[], float]


class Engine:
    """Runs requests step by step. One step computes the scheduled tokens of every chosen request
    and samples one token for each that has caught up."""

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        sampler: Sampler,
        tokenizer: Any,
        max_model_len: int,
        clock: Clock,
        recorder: Recorder | None = None,
    ) -> None:
        self.runner, self.scheduler, self.sampler = runner, scheduler, sampler
        self.tokenizer, self.max_model_len = tokenizer, max_model_len
        self.clock, self.recorder = clock, recorder
        self.requests: dict[str, Request] = {}  # unfinished ones
        self.detokenizers: dict[str, Detokenizer] = {}
        self._to_abort: deque[str] = deque()

    def add(self, request: Request) -> None:
        """Queue a request. Its id must be new."""
        if request.request_id in self.requests:
            raise ValueError(f"A request {request.request_id!r} is under way; choose another id.")
        request.arrival = self.clock()
        self.requests[request.request_id] = request
        self.detokenizers[request.request_id] = Detokenizer(
            self.tokenizer, request.prompt_token_ids, request.params.stop_strings
        )
        self.scheduler.add(request)

    def abort(self, request_id: str) -> None:
        """End a request at the next step; its blocks are free then. Unknown ids are ignored, since
        a request may end at any time. May be called from any thread."""
        self._to_abort.append(request_id)

    @property
    def has_work(self) -> bool:
        return bool(self.requests)

    def step(self) -> list[TokenEvent]:
        """Run one step; returns its tokens, and the end of each aborted request.

        Raises:
            SchedulerError: the scheduler broke a rule. Nothing was computed.
        """
        events = self.abort_asked()
        if not self.requests:
            return events
        began = self.clock()
        batch = self.scheduler.schedule()
        validate(batch, self.scheduler, self.requests)
        for item in batch:
            if item.request.first_scheduled is None:
                item.request.first_scheduled = began
        events += self._run(batch, began)
        return events

    def _run(self, batch: list[Scheduled], began: float) -> list[TokenEvent]:
        sampling = [item.request for item in batch if item.samples]
        logits = self.runner.run(batch)
        tokens = self.sampler.sample(logits, sampling) if sampling else []
        self.scheduler.commit(batch)
        now = self.clock()
        pairs = zip(sampling, tokens, strict=True)
        events = [self._append(request, token, now) for request, token in pairs]
        finished = [self._retire(r) for r in sampling if r.finish_reason is not None]
        if self.recorder is not None:
            self.recorder.record(self.scheduler, batch, events, finished, began, now)
        return events

    def _append(self, request: Request, token: int, now: float) -> TokenEvent:
        request.token_ids.append(token)
        request.token_times.append(now)
        detokenizer = self.detokenizers[request.request_id]
        may_stop = request.num_output_tokens >= request.params.min_tokens
        text = detokenizer.append(token, may_stop)
        request.finish_reason = self._finish_reason(request, token, detokenizer.stopped)
        if request.finish_reason is not None:
            text += detokenizer.finish()
        index = request.num_output_tokens - 1
        return TokenEvent(request.request_id, index, token, text, request.finish_reason, now)

    def _finish_reason(self, request: Request, token: int, stopped: bool) -> str | None:
        params = request.params
        early = request.num_output_tokens < params.min_tokens
        ends = token in self.sampler.eos_token_ids and not params.ignore_eos
        if not early and (ends or stopped or token in (params.stop_token_ids or ())):
            return "stop"
        at_limit = request.num_output_tokens >= params.max_tokens
        return "length" if at_limit or len(request.token_ids) >= self.max_model_len else None

    def _retire(self, request: Request) -> RequestView:
        seen = view(request)
        self.scheduler.remove(request)
        self.sampler.forget(request)
        del self.requests[request.request_id]
        return seen

    def abort_asked(self) -> list[TokenEvent]:
        """Carry out the aborts asked for so far; returns their last events."""
        events = []
        while self._to_abort:
            request = self.requests.get(self._to_abort.popleft())
            if request is None:
                continue
            request.finish_reason = "abort"
            text = self.detokenizers[request.request_id].finish()
            self._retire(request)
            events.append(
                TokenEvent(
                    request.request_id,
                    request.num_output_tokens,
                    None,
                    text,
                    "abort",
                    self.clock(),
                )
            )
        return events
