"""What stands for the model and its KV cache in a simulation: nothing is computed, time passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.engine.step_load import StepLoad
from llmserve_lab.simulate.clock import VirtualClock


class Machine(Protocol):
    """What a simulation needs to know of hardware and model."""

    def seconds(self, load: StepLoad) -> float: ...

    def num_blocks(self, block_size: int) -> int: ...

    def copy_seconds(self, num_tokens: int) -> float:
        """How long the KV of so many tokens takes to host memory, or back."""


class CostRunner:
    """Runner and sampler in one. The token is always 0: a request ends by its length."""

    eos_token_ids: frozenset[int] = frozenset()

    def __init__(self, machine: Machine, clock: VirtualClock) -> None:
        self._machine, self._clock = machine, clock

    def run(self, batch: list[Scheduled]) -> None:
        self._clock.advance(self._machine.seconds(StepLoad.of(batch)))

    def sample(self, logits: None, requests: list[Request]) -> list[int]:
        return [0] * len(requests)

    def forget(self, request: Request) -> None:
        """Nothing was kept."""


class CostStore:
    """Host memory, where preempted requests may leave their blocks."""

    def __init__(self, machine: Machine, clock: VirtualClock, block_size: int) -> None:
        self._machine, self._clock, self._block_size = machine, clock, block_size

    def read_blocks(self, blocks: Sequence[int]) -> None:
        self._clock.advance(self._machine.copy_seconds(len(blocks) * self._block_size))

    def write_blocks(self, blocks: Sequence[int], content: None) -> None:
        self.read_blocks(blocks)

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Within the device's memory: a few blocks at its bandwidth, which no step notices."""
