"""A machine as its own steps show it: costs fitted to measured times."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_lab.engine.step_load import StepLoad
from llmserve_lab.simulate.costs import Costs


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """One model on one machine, as `calibrate` returns it. conditions: processor, threads, dtype.
    tokens: what its KV cache holds. copy_bandwidth: bytes/s between the KV cache and host memory.

    From 64 tokens on a step's time is taken as linear in its units: right for a processor, where
    products are bound by arithmetic, and less so for a GPU, where a few more tokens cost nothing.
    Smaller steps have corrections of their own.
    """

    name: str
    conditions: str
    costs: Costs
    tokens: int
    bytes_per_token: int
    copy_bandwidth: float

    def seconds(self, load: StepLoad) -> float:
        """How long a step takes."""
        return self.costs.seconds(load)

    def num_blocks(self, block_size: int) -> int:
        """KV blocks of `block_size` tokens that the measured engine had."""
        return self.tokens // block_size

    def copy_seconds(self, num_tokens: int) -> float:
        """How long the KV of so many tokens takes to be copied."""
        return num_tokens * self.bytes_per_token / self.copy_bandwidth
