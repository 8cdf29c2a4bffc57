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
    """`num_tokens` tokens of `request`, from position `start` on, run in this step. Those after the
    request's own tokens are its drafts."""

    request: Request
    start: int
    num_tokens: int

    @property
    def samples(self) -> bool:
        """Whether the step ends with a new token for this request."""
        return self.start + self.num_tokens >= len(self.request.token_ids)

    @property
    def num_drafts(self) -> int:
        """How many drafts of the request run."""
        return max(0, self.start + self.num_tokens - len(self.request.token_ids))

    @property
    def num_rows(self) -> int:
        """Rows of logits: after its latest token, and after each draft that runs."""
        return min(self.num_tokens, self.num_drafts + 1) if self.samples else 0

    @property
    def own(self) -> Scheduled:
        """The same without its drafts."""
        drafts = self.num_drafts
        return self._replace(num_tokens=self.num_tokens - drafts) if drafts else self

    def token_ids(self) -> list[int]:
        """The tokens that run."""
        request, end = self.request, self.start + self.num_tokens
        found, known = request.token_ids[self.start : end], len(request.token_ids)
        if end > known:
            found += request.draft_token_ids[max(0, self.start - known) : end - known]
        return found
