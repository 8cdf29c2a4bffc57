"""Speculative decoding inside the engine's step: room, drafts, verdicts, room back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduler
from llmserve_lab.engine.trace import DraftView
from llmserve_lab.engine.work import Work
from llmserve_lab.speculative.grants import Grants
from llmserve_lab.speculative.verifier import Sources, verify

if TYPE_CHECKING:
    from llmserve_lab.engine.meter import Meter
    from llmserve_lab.engine.sampler import Sampler


class Drafter(Protocol):
    """Fills `Request.draft_token_ids`: a `DraftModel`, or `Proposals` of any proposer.

    done: what the latest `draft` had to move and compute.
    """

    done: Work

    def draft(self, batch: Sequence[Scheduled], room: dict[Request, int]) -> Sources:
        """Give each request of `room` up to so many drafts. Returns what those were drawn from that
        were drawn at random; all others count as certain."""

    def num_computed(self, num_accepted: int, num_drafts: int) -> int:
        """Of a request's right drafts, those that need not be computed again."""


class Drafts:
    """The engine's `Speculation`: each step runs a request's latest token together with guesses of
    what follows, and the target's logits after each tell which were right (Leviathan et al. 2023,
    Chen et al. 2023)."""

    def __init__(self, drafter: Drafter, scheduler: Scheduler, num_draft_tokens: int) -> None:
        self.drafter, self.scheduler = drafter, scheduler
        self.grants = Grants(scheduler, num_draft_tokens)
        self._requests: list[Request] = []  # with drafts in this step
        self._sources: Sources = {}

    def extend(self, batch: list[Scheduled], meter: Meter) -> list[Scheduled]:
        room = self.grants.give(batch)
        self._requests = list(room)
        with meter.timing("draft"):
            self._sources = self.drafter.draft(batch, room)
        meter.note_draft_work(self.drafter.done)
        return [
            item._replace(num_tokens=item.num_tokens + len(item.request.draft_token_ids))
            for item in batch
        ]

    def choose(self, sampler: Sampler, logits: Any, requests: Sequence[Request]) -> list[list[int]]:
        return verify(sampler, logits, requests, self._sources)

    def settle(
        self, requests: Sequence[Request], chosen: Sequence[Sequence[int]], meter: Meter
    ) -> list[DraftView]:
        views = []
        for request, tokens in zip(requests, chosen, strict=True):
            if request.draft_token_ids:
                views.append(self._settle(request, len(tokens) - 1))
                meter.note_drafts(views[-1].num_proposed, views[-1].num_accepted)
        self.withdraw()
        return views

    def _settle(self, request: Request, num_accepted: int) -> DraftView:
        drafts = tuple(request.draft_token_ids)
        computed = self.drafter.num_computed(num_accepted, len(drafts))
        self.scheduler.accept(request, min(computed, request.num_uncomputed_tokens - 1))
        return DraftView(request.request_id, drafts, num_accepted)

    def withdraw(self) -> None:
        for request in self._requests:
            request.draft_token_ids = []
        self._requests, self._sources = [], {}
        self.grants.take_back()
