"""What a step runs, and how much it may run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NamedTuple

from llmserve_lab.engine.request import Request


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may hold: sequences, and tokens over all of them; and what a request may."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int = sys.maxsize  # tokens of prompt and output


class Scheduled(NamedTuple):
    """`num_tokens` tokens of `request`, from position `start` on, run in this step."""

    request: Request
    start: int
    num_tokens: int

    @property
    def samples(self) -> bool:
        """Whether the step ends with a new token for this request."""
        return self.start + self.num_tokens == len(self.request.token_ids)
