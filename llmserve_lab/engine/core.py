"""The loop itself: schedule, run, sample, commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from llmserve_lab.engine.detokenizer import Detokenizer, NoText, detokenizer_of
from llmserve_lab.engine.doorbell import Doorbell
from llmserve_lab.engine.meter import Meter
from llmserve_lab.engine.outputs import TokenEvent
from llmserve_lab.engine.ownership import repair
from llmserve_lab.engine.recorder import Recorder, view
from llmserve_lab.engine.request import Request, Status
from llmserve_lab.engine.sampler import Sampler
from llmserve_lab.engine.scheduler import Scheduled, Scheduler
from llmserve_lab.engine.scorer import Scorer
from llmserve_lab.engine.shared_runner import Runner
from llmserve_lab.engine.speculation import NoDrafts, Speculation
from llmserve_lab.engine.token_text import TokenText
from llmserve_lab.engine.trace import RequestView
from llmserve_lab.engine.validate import validate
from llmserve_lab.engine.watchdog import Watchdog
from llmserve_lab.engine.work import ModelWork

Clock = Callable[[], float]


class Engine:
    """Runs requests step by step. One step computes the scheduled tokens of every chosen request
    and samples a token for each that has caught up, or several where drafts of it were right.
    Without a tokenizer no text is made."""

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        sampler: Sampler,
        tokenizer: Any,
        max_model_len: int,
        clock: Clock,
        recorder: Recorder | None = None,
        doorbell: Doorbell | None = None,
        work: ModelWork | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        self.runner, self.scheduler, self.sampler = runner, scheduler, sampler
        self.speculation = NoDrafts() if speculation is None else speculation
        self.text = None if tokenizer is None else TokenText(tokenizer)
        self.scorer = Scorer(self.text.name if self.text else lambda token: "")
        self.max_model_len, self.clock, self.recorder = max_model_len, clock, recorder
        self.doorbell = Doorbell() if doorbell is None else doorbell
        self.watchdog, self.meter = Watchdog(), Meter(scheduler, clock, work)
        self._wake_at: float | None = None  # set by a step in which there was nothing to run yet
        self.requests: dict[str, Request] = {}  # unfinished ones
        self.detokenizers: dict[str, Detokenizer | NoText] = {}
        self._to_abort: deque[str] = deque()
        self._aborted: list[RequestView] = []  # since the latest step, for its snapshot
        self._unreturned: list[TokenEvent] = []

    def add(self, request: Request, arrival: float | None = None) -> None:
        """Queue a request; its `forks` follow once its prompt is computed. Their ids must be new.
        arrival: when it came, if that was before now."""
        group = [request, *request.forks]
        for each in group:
            if each.request_id in self.requests:
                raise ValueError(f"A request {each.request_id!r} is under way; choose another id.")
        now = self.clock() if arrival is None else arrival
        for each in group:
            each.arrival = now
            self.detokenizers[each.request_id] = detokenizer_of(each, self.text)
        self.scheduler.add(request)
        self.requests |= {each.request_id: each for each in group}
        self.watchdog.reset()
        self.doorbell.ring()

    def abort(self, request_id: str) -> None:
        """End a request at the next step; its blocks are free then. Unknown ids are ignored, since
        a request may end at any time. May be called from any thread."""
        if request_id in self.requests:
            self._to_abort.append(request_id)
            self.doorbell.ring()

    @property
    def has_work(self) -> bool:
        return bool(self.requests)

    def step(self) -> list[TokenEvent]:
        """Run one step; returns its tokens, and the end of each aborted request.

        Raises:
            SchedulerError, ProposerError: the scheduler, or who proposes drafts, broke a rule.
                Nothing was computed.
        """
        self._carry_out_aborts()
        if self.requests:
            try:
                self._unreturned += self._compute()
            finally:
                self.scheduler.call_off()
        return self._take()

    def wait(self) -> None:
        """If the latest step ran nothing because the scheduler waits for more requests, wait as
        long as it does, or until a request or an abort comes."""
        wake_at, self._wake_at = self._wake_at, None
        if wake_at is not None:
            self.doorbell.wait(wake_at - self.clock())

    def abort_asked(self) -> list[TokenEvent]:
        """Carry out the aborts asked for so far; returns their last events."""
        self._carry_out_aborts()
        return self._take()

    def _take(self) -> list[TokenEvent]:
        events, self._unreturned = self._unreturned, []
        return events

    def _compute(self) -> list[TokenEvent]:
        began = self.clock()
        batch = self._next_batch()
        if not batch and self.scheduler.wake_at is not None:
            self._wake_at = self.scheduler.wake_at
            return []
        for item in batch:
            if item.request.first_scheduled is None:
                item.request.first_scheduled = began
        batch, logits = self._run(batch) if batch else (batch, None)
        try:
            events = self._commit(batch, logits, began)
            self.meter.note_step(began, len(events))
            return events
        except BaseException:  # which tokens were noted is unknown: nobody goes on from here
            self._to_abort.extend(self.requests)
            raise

    def _run(self, batch: list[Scheduled]) -> tuple[list[Scheduled], Any]:
        """The batch with its drafts, and its logits."""
        try:
            batch = self.speculation.extend(batch, self.meter)
            with self.meter.timing("forward"):
                return batch, self.runner.run(batch)
        except BaseException:
            self.speculation.withdraw()
            raise

    def _next_batch(self) -> list[Scheduled]:
        """What the scheduler chose, checked. Where it failed half-way, no block is left lost."""
        try:
            batch = self.scheduler.schedule()
            validate(batch, self.scheduler, self.requests)
            self.watchdog.note(batch, self.requests)
        except BaseException:
            repair(self.scheduler, self.requests)
            raise
        return batch

    def _commit(self, batch: list[Scheduled], logits: Any, began: float) -> list[TokenEvent]:
        self.meter.note_batch(batch)
        self.scheduler.commit([item.own for item in batch])
        sampling = [item.request for item in batch if item.samples]
        logits = self.scorer.note_prompts(batch, logits)
        logits, sampling = self._forked(logits, sampling)
        with self.meter.timing("sampling"):
            chosen = self.speculation.choose(self.sampler, logits, sampling) if sampling else []
        self.scorer.note_outputs(logits, sampling, chosen)
        now = self.clock()
        pairs = zip(sampling, chosen, strict=True)
        events = [event for pair in pairs for event in self._extend(*pair, now)]
        verdicts = self.speculation.settle(sampling, chosen, self.meter)
        finished = [self._retire(r) for r in sampling if r.finish_reason is not None]
        if self.recorder is not None:
            finished, self._aborted = finished + self._aborted, []
            self.recorder.record(self.scheduler, batch, events, finished, began, now, verdicts)
        return events

    def _extend(self, request: Request, tokens: list[int], now: float) -> list[TokenEvent]:
        """Add the tokens to the output, up to one that ends it; the others are dropped."""
        events: list[TokenEvent] = []
        for token in tokens:
            events.append(self._append(request, token, now))
            if request.finish_reason is not None:
                del request.logprobs[request.num_output_tokens :]
                break
        return events

    def _forked(self, logits: Any, sampling: list[Request]) -> tuple[Any, list[Request]]:
        """Let the continuations of a prompt part: each samples from its last token's logits."""
        if not any(request.forks for request in sampling):
            return logits, sampling
        rows: list[int] = []
        requests: list[Request] = []
        first = 0
        for request in sampling:
            after = first + 1 + len(request.draft_token_ids)
            for one in (request, *self.scheduler.fork(request)):
                rows += range(first, after)
                requests.append(one)
            first = after
        return logits[rows], requests

    def _append(self, request: Request, token: int, now: float) -> TokenEvent:
        request.token_ids.append(token)
        request.token_times.append(now)
        count = request.num_output_tokens
        detokenizer = self.detokenizers[request.request_id]
        text = detokenizer.append(token, count >= request.params.min_tokens)
        reason = self._finish_reason(request, token, count, detokenizer.stopped)
        if reason is not None:
            text += detokenizer.finish()
            request.finish_reason = reason = "stop" if detokenizer.stopped else reason
        logprob = request.logprobs[count - 1] if request.logprobs else None
        return TokenEvent(request.request_id, count - 1, token, text, reason, now, logprob)

    def _finish_reason(self, request: Request, token: int, count: int, stopped: bool) -> str | None:
        """Why the request ends with `token`, its output token number `count`, if it does."""
        params = request.params
        if count >= params.min_tokens:
            ends = not params.ignore_eos and token in self.sampler.eos_token_ids
            if ends or stopped or token in (params.stop_token_ids or ()):
                return "stop"
        at_limit = count >= params.max_tokens
        return "length" if at_limit or len(request.token_ids) >= self.max_model_len else None

    def _retire(self, request: Request) -> RequestView:
        """Forget a request; returns how it stood while it still held its blocks."""
        request.status = Status.FINISHED
        seen = view(request)
        self.scheduler.remove(request)
        self.sampler.forget(request)
        self.detokenizers.pop(request.request_id, None)
        self.requests.pop(request.request_id, None)
        self.watchdog.reset()
        self.meter.note_end(request)
        return seen

    def _carry_out_aborts(self) -> None:
        while self._to_abort:
            request = self.requests.get(self._to_abort.popleft())
            if request is None:
                continue
            request.finish_reason = "abort"
            text = self.detokenizers[request.request_id].finish()
            self._retire(request)
            if self.recorder is not None:
                self._aborted.append(view(request))
            name, index = request.request_id, request.num_output_tokens
            self._unreturned.append(TokenEvent(name, index, None, text, "abort", self.clock()))
