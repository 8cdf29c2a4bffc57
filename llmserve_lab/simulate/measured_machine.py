"""A machine as its own steps show it: costs fitted to measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmserve_lab.engine.step_load import StepLoad

SHORTEST = 1e-9  # seconds; a clock shows no less


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a step, per unit. overhead: per step. token: through the linear layers. sequence:
    per request that runs. sample: per new token (output layer and sampler). decode_kv: per cached
    token that a request with one token attends to. prefill_pair: per (query, key) pair of longer
    chunks."""

    overhead: float
    token: float
    sequence: float
    sample: float
    decode_kv: float
    prefill_pair: float


def units(load: StepLoad) -> tuple[float, ...]:
    """What a step has of each cost, in the order of `Costs`."""
    prefill_pairs = load.pairs - load.decode_kv
    return 1, load.tokens, load.sequences, load.samples, load.decode_kv, prefill_pairs


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """One model on one machine, as `calibrate` returns it. conditions: processor, threads, dtype.
    tokens: what its KV cache holds. copy_bandwidth: bytes/s between the KV cache and host memory.

    A step's time is taken as linear in its units: right for a processor, where products are bound
    by arithmetic, and less so for a GPU, where a few more tokens cost nothing.
    """

    name: str
    conditions: str
    costs: Costs
    tokens: int
    bytes_per_token: int
    copy_bandwidth: float

    def seconds(self, load: StepLoad) -> float:
        """How long a step takes."""
        c = self.costs
        return (
            c.overhead
            + c.token * load.tokens
            + c.sequence * load.sequences
            + c.sample * load.samples
            + c.decode_kv * load.decode_kv
            + c.prefill_pair * (load.pairs - load.decode_kv)
        )

    def num_blocks(self, block_size: int) -> int:
        """KV blocks of `block_size` tokens that the measured engine had."""
        return self.tokens // block_size

    def copy_seconds(self, num_tokens: int) -> float:
        """How long the KV of so many tokens takes to be copied."""
        return num_tokens * self.bytes_per_token / self.copy_bandwidth


def fit(loads: Sequence[StepLoad], seconds: Sequence[float]) -> Costs:
    """The costs, none below zero, with the smallest relative error (weighted least squares; a cost
    that would be negative is left out and the others are fitted again).

    Raises:
        ValueError: fewer measurements than costs.
    """
    import numpy as np

    rows = np.array([units(load) for load in loads], dtype=np.float64)
    times = np.maximum(np.array(seconds, dtype=np.float64), SHORTEST)
    if len(rows) < rows.shape[1]:
        raise ValueError(f"{rows.shape[1]} costs need as many measurements, not {len(rows)}.")
    weighted = rows / times[:, None]
    scale = weighted.max(axis=0)
    scale[scale == 0] = 1.0
    costs = np.full(len(scale), -1.0)
    kept = list(range(len(scale)))
    while costs.min() < 0:
        found = np.linalg.lstsq((weighted / scale)[:, kept], np.ones(len(rows)), rcond=None)[0]
        costs[:] = 0.0
        costs[kept] = found / scale[kept]
        kept.pop(int(found.argmin()))
    return Costs(*costs.tolist())
