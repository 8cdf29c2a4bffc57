"""An engine that reads each step's tokens while the next forward pass runs."""

from __future__ import annotations

from typing import Any

from llmserve_lab.engine.core import Engine
from llmserve_lab.engine.outputs import TokenEvent
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.runner import ModelRunner
from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.engine.unread import UNKNOWN, Unread


class LateEngine(Engine):
    """A GPU computes while the host schedules, makes text and notes ends (compare vLLM's
    asynchronous scheduling).

    A step is scheduled and launched before the tokens of the step before are known to the host: the
    device puts them into the batch. Then they are read, added to their requests, and what this step
    computed for requests that have ended with them is dropped. Sampling comes after that, so it
    knows all earlier tokens. Whoever is at its greatest length gives up its blocks when its last
    token is chosen; other ends come one step late.
    """

    runner: ModelRunner
    _unread: Unread | None = None

    def _compute(self) -> list[TokenEvent]:
        if self._unread is None or self.scheduler.running:
            return super()._compute()
        self._read_now()  # the next step goes on from none of the unread tokens
        return super()._compute() if self.requests else []

    def _carry_out_aborts(self) -> None:
        if self._to_abort:
            self._read_now()
        super()._carry_out_aborts()

    def _read_now(self) -> None:
        """Read the tokens though nothing runs meanwhile."""
        began = self.clock()
        events = self._read()
        self.meter.note_step(began, len(events))
        self._unreturned += events

    def _run(self, batch: list[Scheduled]) -> tuple[list[Scheduled], Any]:
        with self.meter.timing("forward"):
            return batch, self.runner.run(batch, self._unread)

    def _commit(self, batch: list[Scheduled], logits: Any, began: float) -> list[TokenEvent]:
        """Returns the events of the step before."""
        events = self._read()
        going_on, logits = _without_ended(batch, logits)
        try:
            if going_on or not batch:
                self._begin(going_on, logits)
        except BaseException:
            self._unreturned += events
            raise
        return events

    def _begin(self, batch: list[Scheduled], logits: Any) -> None:
        """Note what is computed, and choose tokens that nobody reads yet."""
        self.meter.note_batch(batch)
        self.scheduler.commit(batch)
        sampling = [item.request for item in batch if item.samples]
        logits = self.scorer.note_prompts(batch, logits)
        logits, sampling = self._forked(logits, sampling)
        if not sampling:
            return
        with self.meter.timing("sampling"):
            tokens = self.sampler.choose(logits, sampling)
        self._unread = Unread(tokens, sampling, logits)
        for request in sampling:
            self._await(request)

    def _await(self, request: Request) -> None:
        """Keep a place for the token that was chosen."""
        request.token_ids.append(UNKNOWN)
        if self._finish_reason(request, UNKNOWN, request.num_output_tokens, False) == "length":
            self.scheduler.remove(request)

    def _read(self) -> list[TokenEvent]:
        """Add the unread tokens to their requests."""
        unread, self._unread = self._unread, None
        if unread is None:
            return []
        for request in unread.requests:
            request.token_ids.pop()
        chosen = [[token] for token in unread.read()]
        self.scorer.note_outputs(unread.logits, unread.requests, chosen)
        now = self.clock()
        pairs = zip(unread.requests, chosen, strict=True)
        events = [event for pair in pairs for event in self._extend(*pair, now)]
        for request in unread.requests:
            if request.finish_reason is not None:
                self._retire(request)
        return events


def engine_kind(asynchronous: bool, *together_with: object) -> type[Engine]:
    """The engine that reads tokens late, or the one that reads them at once. together_with: what
    only the latter does, where it is asked for.

    Raises:
        ValueError: both are asked for.
    """
    if not asynchronous:
        return Engine
    if any(together_with):
        raise ValueError(
            "async_scheduling goes with none of draft, trace and tensor_parallel: leave it or them "
            "out."
        )
    return LateEngine


def _without_ended(batch: list[Scheduled], logits: Any) -> tuple[list[Scheduled], Any]:
    """The requests that go on, and their rows of logits."""
    going_on = [item for item in batch if item.request.finish_reason is None]
    if len(going_on) == len(batch):
        return batch, logits
    rows: list[int] = []
    first = 0
    for item in batch:
        if item.request.finish_reason is None:
            rows += range(first, first + item.num_rows)
        first += item.num_rows
    return going_on, logits[[*rows, *range(first, len(logits))]]
