"""Takes the snapshots of a trace, if it is asked to."""

from __future__ import annotations

from collections.abc import Sequence

from llmserve_lab.engine.outputs import TokenEvent
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled, Scheduler
from llmserve_lab.engine.trace import (
    DraftView,
    RequestView,
    SampledView,
    ScheduledView,
    StepSnapshot,
    Trace,
)


class Recorder:
    """Appends one snapshot per step to `trace`; times count from the first step's start."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._origin: float | None = None

    def record(
        self,
        scheduler: Scheduler,
        batch: list[Scheduled],
        events: list[TokenEvent],
        finished: list[RequestView],
        began: float,
        ended: float,
        drafts: Sequence[DraftView] = (),
    ) -> None:
        """Note one step. `finished` was viewed before those requests gave up their blocks, except
        aborted ones, whose blocks were free before the step."""
        if self._origin is None:
            self._origin = began
        pool = scheduler.pool
        snapshot = StepSnapshot(
            step=len(self.trace),
            started=began - self._origin,
            seconds=ended - began,
            scheduled=tuple(_scheduled_view(item) for item in batch),
            sampled=_sampled_views(events),
            waiting=tuple(view(request) for request in scheduler.waiting),
            running=tuple(view(request) for request in scheduler.running),
            finished=tuple(finished),
            preempted=tuple(request.request_id for request in scheduler.preempted),
            block_size=pool.block_size,
            block_refs=pool.refs(),
            cached_blocks=pool.cached(),
            num_hit_tokens=_hit_tokens(batch),
            max_num_batched_tokens=scheduler.limits.max_num_batched_tokens,
            drafts=tuple(drafts),
        )
        self.trace.steps.append(snapshot)


def view(request: Request) -> RequestView:
    """What a snapshot keeps of a request."""
    return RequestView(
        request_id=request.request_id,
        state=request.status.value,
        num_prompt_tokens=request.num_prompt_tokens,
        num_computed_tokens=request.num_computed_tokens,
        num_output_tokens=request.num_output_tokens,
        block_table=tuple(request.block_table),
    )


def _scheduled_view(item: Scheduled) -> ScheduledView:
    prompt_left = max(0, item.request.num_prompt_tokens - item.start)
    return ScheduledView(
        item.request.request_id, item.start, item.num_tokens, min(item.num_tokens, prompt_left)
    )


def _sampled_views(events: list[TokenEvent]) -> tuple[SampledView, ...]:
    return tuple(
        SampledView(event.request_id, event.token_id, event.text)
        for event in events
        if event.token_id is not None
    )


def _hit_tokens(batch: list[Scheduled]) -> int:
    """Prompt tokens of requests that start here after a prefix that was found."""
    return sum(
        min(item.start, item.request.num_prompt_tokens)
        for item in batch
        if item.start == item.request.num_hit_tokens > 0
    )
