"""Measures this machine, so that a simulation speaks of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from llmserve_lab.engine.checks import require_number
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.engine.scheduler import Scheduled, Scheduler
from llmserve_lab.engine.step_load import StepLoad
from llmserve_lab.machine import processor_name
from llmserve_lab.simulate.costs import fit
from llmserve_lab.simulate.measured_machine import MeasuredMachine
from llmserve_lab.simulate.this_machine import copy_bandwidth

if TYPE_CHECKING:
    from llmserve_lab.engine.llm import LLM

STEPS = 4  # of decode at each batch size
FEWEST_ROUNDS = 3
LONGEST_CALIBRATION = 3600.0  # seconds


class Point(NamedTuple):
    """`requests` prompts of `share` of the longest context, in chunks of at most `chunk` tokens in
    all. After every fourth decode step `leave` of them end: a batch of many sizes."""

    requests: int
    share: float
    leave: int = 1
    chunk: int | None = None


POINTS = (
    Point(16, 0.01), Point(64, 0.02, 8), Point(16, 0.1, 2), Point(32, 0.05, 8), Point(8, 0.25, 2),
    Point(4, 0.4), Point(2, 0.8), Point(1, 0.06), Point(1, 0.12), Point(1, 0.25), Point(1, 0.5),
    Point(1, 0.5, chunk=48), Point(2, 0.4, chunk=100), Point(6, 0.1, chunk=64),
    Point(12, 0.05, chunk=128),
)  # fmt: skip


class Probe(Scheduler):
    """Remembers what the latest step asked for."""

    load: StepLoad

    def schedule(self) -> list[Scheduled]:
        batch = super().schedule()
        self.load = StepLoad.of(batch)
        return batch


class Calibration:
    """Steps of many shapes on the real engine, round after round, and the costs fitted to them.

    settings: for `LLM`, those that are to be simulated.
    """

    def __init__(self, model: Any = "lab-target", **settings: Any) -> None:
        from llmserve_lab.engine.llm import LLM

        self._probe = Probe()
        self.llm = LLM(model, scheduler=self._probe, **settings)
        self._name = str(getattr(model, "name", model))
        self._loads: list[StepLoad] = []
        self._times: list[list[float]] = []  # of each step, over the rounds
        self.measure()  # warm up: kernels compile, memory is touched

    def measure(self) -> list[tuple[StepLoad, float]]:
        """One round: each step with its seconds, the same steps every time."""
        return list(self._steps())

    def add(self, measured: list[tuple[StepLoad, float]], factor: float = 1.0) -> None:
        """Let a round count. factor: what its times are multiplied with, where the machine was not
        as fast as it shall be taken to be."""
        self._loads = [load for load, _ in measured]
        self._times.append([seconds * factor for _, seconds in measured])

    def machine(self) -> MeasuredMachine:
        """Costs fitted to each step's median over the rounds."""
        times = [median(seconds) for seconds in zip(*self._times, strict=True)]
        capacity = self.llm.capacity
        return MeasuredMachine(
            name=self._name,
            conditions=_conditions(self.llm),
            costs=fit(self._loads, times),
            tokens=capacity.num_blocks * capacity.block_size,
            bytes_per_token=capacity.block_bytes // capacity.block_size,
            copy_bandwidth=copy_bandwidth(self.llm.model.device),
        )

    def _steps(self) -> Iterator[tuple[StepLoad, float]]:
        """Every step of every point: prefill in chunks, then decode steps, but not the first of
        them: it still pays for what a large prefill has driven out of the processor's caches."""
        engine, limits = self.llm._engine, self._probe.limits
        for point in POINTS:
            for request in self._requests(point):
                engine.add(request)
            budget = point.chunk or limits.max_num_batched_tokens
            self._probe.limits = replace(limits, max_num_batched_tokens=budget)
            chunks = 0
            while engine.has_work:
                began, before = engine.clock(), chunks
                engine.step()
                chunks = self._probe.load.chunks
                if chunks or not before:
                    yield self._probe.load, engine.clock() - began
            self._probe.limits = limits

    def _requests(self, point: Point) -> Iterator[Request]:
        rng, ids = Random(0), range(self.llm.model.config.get_text_config().vocab_size)
        most = 1 + STEPS * -(-point.requests // point.leave)
        length = max(1, min(int(point.share * self.llm.max_model_len), self._longest - most))
        for number in range(point.requests):
            count = 1 + STEPS * (1 + number // point.leave)
            params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
            yield Request(f"calibrate-{number}", rng.choices(ids, k=length), params)

    @property
    def _longest(self) -> int:
        pool = self.llm.pool
        return min(self.llm.max_model_len, pool.num_blocks * pool.block_size)


def calibrate(model: Any = "lab-target", seconds: float = 20.0, **settings: Any) -> MeasuredMachine:
    """Run steps of many shapes on the real engine for about `seconds` (at least three rounds, after
    one to warm up), and fit costs to each step's median over the rounds.

    settings: for `LLM`, those that are to be simulated.

    Raises:
        ValueError, TypeError: `seconds` out of range, or what `LLM` refuses.
    """
    require_number("seconds", seconds, 0.0, LONGEST_CALIBRATION)
    calibration = Calibration(model, **settings)
    clock = calibration.llm._engine.clock
    began, rounds = clock(), 0
    while rounds < FEWEST_ROUNDS or clock() - began < seconds:
        calibration.add(calibration.measure())
        rounds += 1
    return calibration.machine()


def _conditions(llm: LLM) -> str:
    import torch

    dtype = str(llm.model.dtype).removeprefix("torch.")
    if llm.model.device.type == "cuda":
        return f"{torch.cuda.get_device_name(llm.model.device)}, {dtype}"
    return f"{processor_name()}, {torch.get_num_threads()} threads, {dtype}"
