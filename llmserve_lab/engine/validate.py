"""What every scheduler owes the engine, a learner's own included."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.errors import SchedulerError
from llmserve_lab.engine.ownership import SHOWN, broken_rule, overwritten
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduler


def require_scheduler(scheduler: Any) -> Scheduler:
    """Raise unless it is a Scheduler object: the class itself is easily passed instead."""
    if isinstance(scheduler, Scheduler) and hasattr(scheduler, "waiting"):
        return scheduler
    raise TypeError(
        "scheduler must be a Scheduler object, such as MyScheduler(), whose __init__ calls "
        f"super().__init__(); not {scheduler!r:.80}."
    )


def validate(batch: list[Scheduled], scheduler: Scheduler, requests: dict[str, Request]) -> None:
    """Check a batch before it runs. Who owns which block is checked for schedulers and pools
    from outside this package; those within have tests for it.

    Raises:
        SchedulerError: not a list of Scheduled, an unknown request, one twice, a wrong start, too
            many tokens or sequences, nothing to do while requests wait, blocks that are missing,
            free, lost or another's, or that nobody computes.
    """
    if not isinstance(batch, list) or not all(type(item) is Scheduled for item in batch):
        raise SchedulerError(f"schedule() must return a list of Scheduled, not {batch!r:.80}.")
    if not batch and not scheduler.preempted:
        _require_wait(scheduler, requests)
    size = scheduler.pool.block_size
    faulty = [item for item in batch if not _is_sound(item, requests, size)]
    for item in faulty:
        _require_types(item)
    _require_limits(batch, scheduler)
    for item in faulty:
        raise SchedulerError(f"Request {item.request.request_id!r} {_fault(item, requests)}.")
    if len({item.request.request_id for item in batch}) < len(batch):
        ((name, _),) = Counter(item.request.request_id for item in batch).most_common(1)
        raise SchedulerError(f"Request {name!r} is in the step twice.")
    _require_lenders(batch, scheduler)
    if not (_is_ours(scheduler) and _is_ours(scheduler.pool)):
        _require_ownership(batch, scheduler, requests)


def _is_ours(part: Any) -> bool:
    return type(part).__module__.startswith(__name__.split(".")[0] + ".")


def _require_wait(scheduler: Scheduler, requests: dict[str, Request]) -> None:
    """An empty step needs a time at which there will be something to run."""
    wake_at = scheduler.wake_at
    if wake_at is None:
        names = ", ".join(list(requests)[:SHOWN])
        raise SchedulerError(f"The scheduler chose nothing while requests wait ({names}).")
    if not isinstance(wake_at, (int, float)) or not math.isfinite(wake_at):
        raise SchedulerError(f"wake_at must be a time in seconds, not {wake_at!r:.80}.")


def _require_types(item: Scheduled) -> None:
    request, start, num_tokens = item
    if not isinstance(request, Request):
        raise SchedulerError(f"Scheduled.request must be a Request, not {request!r:.80}.")
    if type(start) is not int or type(num_tokens) is not int:
        raise SchedulerError(
            f"Request {request.request_id!r}: start and num_tokens must be of type int, not "
            f"{start!r:.40} and {num_tokens!r:.40}."
        )


def _require_limits(batch: list[Scheduled], scheduler: Scheduler) -> None:
    limits = scheduler.limits
    if len(batch) > limits.max_num_seqs:
        raise SchedulerError(f"{len(batch)} sequences in a step of at most {limits.max_num_seqs}.")
    total = sum([item.num_tokens for item in batch])
    if total > limits.max_num_batched_tokens:
        raise SchedulerError(
            f"{total} tokens in a step of at most {limits.max_num_batched_tokens}."
        )


def _require_lenders(batch: list[Scheduled], scheduler: Scheduler) -> None:
    unmet = scheduler.tables.loans.unmet(batch)
    if unmet is not None:
        borrower, lender = (request.request_id for request in unmet)
        raise SchedulerError(
            f"Request {borrower!r} reads a prefix that request {lender!r} was to compute in the "
            "same step: run all tokens that schedule() chose for the two, or drop both."
        )


def _is_sound(item: Scheduled, requests: dict[str, Request], block_size: int) -> bool:
    """All that `_fault` tells apart, at once: this runs for every request in every step."""
    request, start, num_tokens = item
    end = start + num_tokens
    return (
        isinstance(request, Request)
        and type(start) is int
        and type(num_tokens) is int
        and requests.get(request.request_id) is request
        and start == request.num_computed_tokens
        and start < end <= len(request.token_ids)
        and end <= len(request.block_table) * block_size
    )


def _fault(item: Scheduled, requests: dict[str, Request]) -> str:
    request, start, num_tokens = item
    if requests.get(request.request_id) is not request:
        return "is not one that the engine knows"
    if start != request.num_computed_tokens:
        return f"must go on at token {request.num_computed_tokens}, not at {start}"
    if not 1 <= num_tokens <= request.num_uncomputed_tokens:
        return f"has {request.num_uncomputed_tokens} tokens to compute; {num_tokens} were scheduled"
    return f"lacks blocks for its first {start + num_tokens} tokens"


def _require_ownership(
    batch: list[Scheduled], scheduler: Scheduler, requests: dict[str, Request]
) -> None:
    pool = scheduler.pool
    active = dict.fromkeys([*scheduler.running, *(item.request for item in batch)])
    if broken_rule(active, pool) is not None:  # unless a waiting request explains it
        broken = broken_rule(requests.values(), pool)
        if broken is not None:
            raise SchedulerError(broken)
    for item in batch:
        block = overwritten(item, pool, scheduler.tables.loans)
        if block is not None:
            raise SchedulerError(
                f"Request {item.request.request_id!r} would write into a block that others "
                f"read too ({block}): call _grow, which copies it, or set can_fork = False."
            )
