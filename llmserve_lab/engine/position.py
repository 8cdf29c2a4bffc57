"""A place in a request's output that no token is chosen for yet."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Position:
    """A request as it will be if its first `num_drafts` drafts are right: penalties, `min_tokens`
    and seeds follow from it as they do from a request."""

    request: Request
    num_drafts: int

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def params(self) -> SamplingParams:
        return self.request.params

    @property
    def token_ids(self) -> list[int]:
        """The request's own, without drafts."""
        return self.request.token_ids

    @property
    def num_prompt_tokens(self) -> int:
        return self.request.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        return self.request.num_output_tokens + self.num_drafts

    @property
    def tokens_ahead(self) -> list[int]:
        """The drafts that are taken for right."""
        return self.request.draft_token_ids[: self.num_drafts]


Row = Request | Position  # what a row of logits is for
