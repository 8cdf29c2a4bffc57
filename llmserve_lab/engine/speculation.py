"""What the engine asks of whoever guesses tokens ahead; without anybody it runs as ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.trace import DraftView

if TYPE_CHECKING:
    from llmserve_lab.engine.meter import Meter
    from llmserve_lab.engine.sampler import Sampler


class Speculation(Protocol):
    """Adds drafts to a step and judges them by the model's logits. See `llmserve_lab.speculative`
    for the one that does."""

    def extend(self, batch: list[Scheduled], meter: Meter) -> list[Scheduled]:
        """The batch with drafts after the own tokens of its requests, which hold them as
        `draft_token_ids`."""

    def choose(self, sampler: Sampler, logits: Any, requests: Sequence[Request]) -> list[list[int]]:
        """For each request its right drafts and one token more. logits: of each request the rows
        after its latest token and after each of its drafts."""

    def settle(
        self, requests: Sequence[Request], chosen: Sequence[Sequence[int]], meter: Meter
    ) -> list[DraftView]:
        """The chosen tokens are in the outputs, as far as these go: note what of the drafts is
        computed, and take back the room of the others."""

    def withdraw(self) -> None:
        """The step failed: take back all drafts."""


class NoDrafts:
    """One token after the other."""

    def extend(self, batch: list[Scheduled], meter: Meter) -> list[Scheduled]:
        return batch

    def choose(self, sampler: Sampler, logits: Any, requests: Sequence[Request]) -> list[list[int]]:
        return [[token] for token in sampler.sample(logits, requests)]

    def settle(
        self, requests: Sequence[Request], chosen: Sequence[Sequence[int]], meter: Meter
    ) -> list[DraftView]:
        return []

    def withdraw(self) -> None:
        """There are none."""
