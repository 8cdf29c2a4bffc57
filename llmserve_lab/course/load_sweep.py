"""The plumbing of load experiments: many loads on a machine that is fitted to steps seen live."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.simulate import LoadResult, MeasuredMachine, Simulator, StepLoad, Workload

if TYPE_CHECKING:
    from llmserve_lab.engine.llm import LLM
    from llmserve_lab.engine.trace import ScheduledView, StepSnapshot


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One workload's result. load: what was offered, as a share of the capacity."""

    load: float
    offered: float  # requests/s
    result: LoadResult


def step_load(step: StepSnapshot) -> StepLoad:
    """What a step of a trace asked of its machine."""
    sampled = {token.request_id for token in step.sampled}
    drafts = {view.request_id: view.num_proposed for view in step.drafts}
    return StepLoad.of(
        [
            _scheduled(item, item.request_id in sampled, drafts.get(item.request_id, 0))
            for item in step.scheduled
        ]
    )


def fitted_machine(llm: LLM, results: Iterable[LoadResult]) -> MeasuredMachine:
    """A machine whose steps take as long as those of these runs did, for a `Simulator`.

    Cheaper than `calibrate`, and right only for steps like the ones that ran. llm: an engine of the
    same model and settings.

    Raises:
        ValueError: a run without a trace, or fewer steps than costs.
    """
    from llmserve_lab.simulate.costs import fit

    steps = [step for result in results for step in _trace(result) if step.scheduled]
    loads, times = [step_load(step) for step in steps], [step.seconds for step in steps]
    capacity = llm.capacity
    return MeasuredMachine(
        name="this machine",
        conditions=f"fitted to {len(steps)} steps of live runs",
        costs=fit(loads, times),
        tokens=capacity.num_blocks * capacity.block_size,
        bytes_per_token=capacity.block_bytes // capacity.block_size,
        copy_bandwidth=float("inf"),  # nothing is swapped here
    )


def sweep(
    machine: Any,
    loads: Sequence[float],
    capacity: float,
    workload: Callable[[float], Workload],
    **settings: Any,
) -> list[LoadPoint]:
    """Simulate `workload(rate)` at each load. capacity: requests/s. settings: of `Simulator`."""
    return [
        LoadPoint(
            load, load * capacity, Simulator(machine, **settings).run(workload(load * capacity))
        )
        for load in loads
    ]


def _scheduled(item: ScheduledView, samples: bool, num_drafts: int) -> Scheduled:
    """The part of a batch that a view was made of, as far as it counts: its request has caught up
    with its tokens if it sampled."""
    known = range(item.start + item.num_tokens - num_drafts + (not samples))
    request: Any = SimpleNamespace(token_ids=known)
    return Scheduled(request, item.start, item.num_tokens)


def _trace(result: LoadResult) -> Any:
    if result.trace is None:
        raise ValueError("A machine is fitted to steps: run the engine with LLM(..., trace=True).")
    return result.trace
