"""A machine for the simulator whose steps take what a two-part formula says."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_lab.course.step_cost import StepCost
from llmserve_lab.engine.step_load import StepLoad

ROOMY = 2**20  # tokens of KV cache: more than any run here holds


@dataclass(frozen=True, slots=True)
class TwoPartMachine:
    """cost: of a step, by the requests in it. prompt_token: seconds for each token beyond one of a
    request, as in a prefill. kv_tokens: what its KV cache holds."""

    cost: StepCost
    prompt_token: float = 0.0
    kv_tokens: int = ROOMY

    def seconds(self, load: StepLoad) -> float:
        """How long a step takes."""
        more = load.tokens - load.sequences
        return self.cost.seconds(load.sequences) + self.prompt_token * more

    def num_blocks(self, block_size: int) -> int:
        """KV blocks of `block_size` tokens."""
        return self.kv_tokens // block_size

    def copy_seconds(self, num_tokens: int) -> float:
        """Copying is not counted here."""
        return 0.0
