"""Blocks that one request reads in the very step in which another one computes them."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.request import Request
from llmserve_lab.kv_cache import Prefix


class Offer(NamedTuple):
    """Entry `place` of the lender's block table, full once its first `end` tokens are computed."""

    lender: Request
    place: int
    end: int
    block: int
    prefix: Prefix

    def is_kept(self, num_computed: int) -> bool:
        """Whether the block is computed once so many of the lender's tokens are."""
        held = self.lender.block_table[self.place : self.place + 1]
        return held == [self.block] and num_computed >= self.end


class Loans:
    """Who goes on, in this step, from blocks that others compute in it.

    Every attention backend writes a layer's keys and values of all the step's tokens, quantized
    ones included, before it reads any: so a full block may be read in the step that fills it. The
    pool hears of it after the step alone. What fails or is left out of the step therefore leaves no
    prefix behind that nobody computed, and whoever counted on it is found in `borrowers`.
    """

    def __init__(self) -> None:
        self.ahead: dict[Request, list[Prefix]] = {}  # of blocks that it computes in this step
        self._offers: dict[bytes, Offer] = {}  # by the prefix's digest
        self._taken: dict[Request, list[Offer]] = {}  # by the borrower, lenders before borrowers
        self._readers: Counter[int] = Counter()  # of each block that is read as it is written

    def offer(self, offer: Offer) -> None:
        """Let requests that are admitted after this go on from a block."""
        self._offers.setdefault(offer.prefix.digest, offer)

    def find(self, prefix: Prefix) -> Offer | None:
        """A block that will have this content."""
        offer = self._offers.get(prefix.digest)
        return offer if offer is not None and offer.prefix.same_as(prefix) else None

    @property
    def has_offers(self) -> bool:
        return bool(self._offers)

    def take(self, borrower: Request, offers: list[Offer]) -> None:
        """Note that a request goes on from these blocks."""
        if offers:
            self._taken[borrower] = offers
            self._readers.update(offer.block for offer in offers)

    def forget(self, request: Request) -> None:
        """The request gives up its blocks."""
        self.ahead.pop(request, None)
        self._readers.subtract(offer.block for offer in self._taken.pop(request, ()))

    def settle(self) -> None:
        """The step is computed. Only loans that were not kept are left."""
        self.ahead.clear()
        self._offers.clear()
        self._taken = {
            borrower: offers
            for borrower, offers in self._taken.items()
            if not all(offer.is_kept(offer.lender.num_computed_tokens) for offer in offers)
        }
        self._readers = Counter(o.block for offers in self._taken.values() for o in offers)

    def call_off(self) -> list[Request]:
        """The step has ended. Returns those who count on blocks that it did not compute."""
        self.ahead.clear()
        self._offers.clear()
        return list(self._taken)

    def borrows(self, request: Request) -> bool:
        return request in self._taken

    def num_readers(self, block: int) -> int:
        """How many requests read a block that another one writes in this step."""
        return self._readers[block]

    def unmet(self, batch: list[Scheduled]) -> tuple[Request, Request] | None:
        """A request of the batch, and one whose blocks it reads though the batch does not compute
        them; None where there is none."""
        if not self._taken:
            return None
        reached = {item.request: item.start + item.num_tokens for item in batch}
        for borrower, offers in self._taken.items():
            for offer in offers if borrower in reached else ():
                if not offer.is_kept(reached.get(offer.lender, 0)):
                    return borrower, offer.lender
        return None
