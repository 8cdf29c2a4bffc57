"""Measures this machine, so that a simulation speaks of it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.checks import require_number
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.engine.scheduler import Scheduled, Scheduler
from llmserve_lab.engine.step_load import StepLoad
from llmserve_lab.machine import processor_name
from llmserve_lab.simulate.measured_machine import Costs, MeasuredMachine, fit
from llmserve_lab.simulate.this_machine import copy_bandwidth

if TYPE_CHECKING:
    from llmserve_lab.engine.llm import LLM

# (requests, share of the longest context): few and many, short and long
POINTS = (
    (1, 0.02), (1, 0.06), (1, 0.12), (1, 0.25), (1, 0.5), (2, 0.1), (2, 0.8), (4, 0.02), (4, 0.4),
    (8, 0.1), (16, 0.02), (16, 0.2), (32, 0.05), (64, 0.02), (64, 0.12),
)  # fmt: skip
OUTPUT_TOKENS = 6
FEWEST_ROUNDS = 3
LONGEST_CALIBRATION = 3600.0  # seconds
Measurement = tuple[StepLoad, float]


class Probe(Scheduler):
    """Remembers what the latest step asked for."""

    load: StepLoad

    def schedule(self) -> list[Scheduled]:
        batch = super().schedule()
        self.load = StepLoad.of(batch)
        return batch


def calibrate(model: Any = "lab-target", seconds: float = 20.0, **settings: Any) -> MeasuredMachine:
    """Run steps of many shapes on the real engine for about `seconds` (at least three rounds, after
    one to warm up), and fit costs to each step's median over the rounds.

    settings: for `LLM`, those that are to be simulated.

    Raises:
        ValueError, TypeError: `seconds` out of range, or what `LLM` refuses.
    """
    from llmserve_lab.engine.llm import LLM

    require_number("seconds", seconds, 0.0, LONGEST_CALIBRATION)
    probe = Probe()
    llm = LLM(model, scheduler=probe, **settings)
    rounds = _rounds(llm, probe, seconds)
    loads = [load for load, _ in rounds[0]]
    times = [median(times) for times in zip(*_times(rounds), strict=True)]
    return _machine(llm, str(getattr(model, "name", model)), fit(loads, times))


def _machine(llm: LLM, name: str, costs: Costs) -> MeasuredMachine:
    capacity = llm.capacity
    return MeasuredMachine(
        name=name,
        conditions=_conditions(llm),
        costs=costs,
        tokens=capacity.num_blocks * capacity.block_size,
        bytes_per_token=capacity.block_bytes // capacity.block_size,
        copy_bandwidth=copy_bandwidth(llm.model.device),
    )


def _rounds(llm: LLM, probe: Probe, seconds: float) -> list[list[Measurement]]:
    """The steps of several rounds, in the same order in each."""
    list(_round(llm, probe))  # warm up: kernels compile, memory is touched
    clock = llm._engine.clock
    found: list[list[Measurement]] = []
    began = clock()
    while len(found) < FEWEST_ROUNDS or clock() - began < seconds:
        found.append(list(_round(llm, probe)))
    return found


def _times(rounds: list[list[Measurement]]) -> list[list[float]]:
    return [[seconds for _, seconds in steps] for steps in rounds]


def _round(llm: LLM, probe: Probe) -> Iterator[Measurement]:
    """Every step of every measuring point: prefill in chunks, then some decode steps."""
    engine, rng = llm._engine, Random(0)
    ids = range(llm.model.config.get_text_config().vocab_size)
    longest = llm.max_model_len - OUTPUT_TOKENS
    params = SamplingParams(temperature=0.0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
    for count, share in POINTS:
        length = max(1, int(share * longest))
        for number in range(count):
            engine.add(Request(f"calibrate-{number}", rng.choices(ids, k=length), params))
        while engine.has_work:
            began = engine.clock()
            engine.step()
            yield probe.load, engine.clock() - began


def _conditions(llm: LLM) -> str:
    import torch

    dtype = str(llm.model.dtype).removeprefix("torch.")
    if llm.model.device.type == "cuda":
        return f"{torch.cuda.get_device_name(llm.model.device)}, {dtype}"
    return f"{processor_name()}, {torch.get_num_threads()} threads, {dtype}"
