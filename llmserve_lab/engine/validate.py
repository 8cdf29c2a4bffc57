"""What every scheduler owes the engine, a learner's own included."""

from __future__ import annotations

from typing import Any

from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled, Scheduler


class SchedulerError(RuntimeError):
    """The scheduler broke a rule; the message names the request and the rule."""


def require_scheduler(scheduler: Any) -> Scheduler:
    """Raise unless it is a Scheduler object: the class itself is easily passed instead."""
    if isinstance(scheduler, Scheduler) and hasattr(scheduler, "waiting"):
        return scheduler
    raise TypeError(
        "scheduler must be a Scheduler object, such as MyScheduler(), whose __init__ calls "
        f"super().__init__(); not {scheduler!r:.80}."
    )


def validate(batch: list[Scheduled], scheduler: Scheduler, requests: dict[str, Request]) -> None:
    """Check a batch before it runs.

    Raises:
        SchedulerError: not a list of Scheduled, an unknown request, one twice, a wrong start, too
            many tokens or sequences, missing blocks, or nothing to do while requests wait.
    """
    if not isinstance(batch, list) or not all(isinstance(item, Scheduled) for item in batch):
        raise SchedulerError(f"schedule() must return a list of Scheduled, not {batch!r:.80}.")
    if not batch and not scheduler.preempted and scheduler.wake_at is None:
        names = ", ".join(list(requests)[:3])
        raise SchedulerError(f"The scheduler chose nothing while requests wait ({names}).")
    limits = scheduler.limits
    if len(batch) > limits.max_num_seqs:
        raise SchedulerError(f"{len(batch)} sequences in a step of at most {limits.max_num_seqs}.")
    total = sum(item.num_tokens for item in batch)
    if total > limits.max_num_batched_tokens:
        raise SchedulerError(
            f"{total} tokens in a step of at most {limits.max_num_batched_tokens}."
        )
    seen: set[str] = set()
    for item in batch:
        _validate_item(item, scheduler, requests)
        if item.request.request_id in seen:
            raise SchedulerError(f"Request {item.request.request_id!r} is in the step twice.")
        seen.add(item.request.request_id)


def _validate_item(item: Scheduled, scheduler: Scheduler, requests: dict[str, Request]) -> None:
    request, end = item.request, item.start + item.num_tokens
    if requests.get(request.request_id) is not request:
        raise SchedulerError(f"Request {request.request_id!r} is not one that the engine knows.")
    if item.start != request.num_computed_tokens:
        raise SchedulerError(
            f"Request {request.request_id!r} must go on at token {request.num_computed_tokens}, "
            f"not at {item.start}."
        )
    if item.num_tokens < 1 or end > len(request.token_ids):
        raise SchedulerError(
            f"Request {request.request_id!r} has {request.num_uncomputed_tokens} tokens to "
            f"compute; {item.num_tokens} were scheduled."
        )
    if request.shares_blocks and scheduler.pool.num_shared(request.block_table, item.start):
        raise SchedulerError(
            f"Request {request.request_id!r} would write into a block that others read; use _grow, "
            "which copies it, or set can_fork = False."
        )
    if len(request.block_table) < scheduler.pool.blocks_for(end):
        raise SchedulerError(
            f"Request {request.request_id!r} lacks blocks for its first {end} tokens."
        )
