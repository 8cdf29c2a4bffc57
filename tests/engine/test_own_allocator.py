"""Reservations placed by an allocator of the caller's: served as by ours, or told what is wrong."""

from __future__ import annotations

import pytest

from llmserve_lab import SamplingParams
from llmserve_lab.course.checks.ex17 import FirstFit
from llmserve_lab.course.checks.ex17_allocators import NeverJoins, Overlaps
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.reserving_scheduler import ReservingScheduler
from llmserve_lab.engine.scheduler import Limits
from tests.engine.counting_model import build
from tests.engine.test_kv_use import lengths

REQUESTS = lengths((4, 60), (2, 60), count=40, seed=3)


def serve(scheduler, num_blocks=24, block_size=8):
    """The maps of a whole run, and the tokens of each request."""
    engine = build(num_blocks, block_size, Limits(64, 2**12, 192), scheduler=scheduler)
    engine.max_model_len = 192
    requests = [
        Request(str(number), [1 + number % 4] * prompt, SamplingParams(max_tokens=output))
        for number, (prompt, output) in enumerate(REQUESTS)
    ]
    for request in requests:
        engine.add(request)
    while engine.has_work:
        engine.step()
    return scheduler.maps, [request.token_ids for request in requests]


def test_a_first_fit_of_ones_own_places_everything_as_ours_does():
    ours, own = (
        ReservingScheduler(to_model_len=False, **options)
        for options in ({}, {"allocator": FirstFit})
    )
    assert serve(own) == serve(ours)
    assert any(shot.external_fragmentation for shot in ours.maps)
    reasons = [[None if e is None else str(e) for e in s.refusals] for s in (ours, own)]
    assert reasons[0] == reasons[1] and any(reasons[0])
    assert len(ours.refusals) == len(ours.maps)
    assert own.memory.own.holes == [(0, 192)]


def test_one_that_never_joins_holes_serves_the_same_tokens_in_more_steps():
    ours, own = (
        ReservingScheduler(to_model_len=False),
        ReservingScheduler(to_model_len=False, allocator=NeverJoins),
    )
    with pytest.raises(Exception, match="chose nothing while requests wait"):
        serve(own)  # holes only get smaller: in the end nobody fits
    _, tokens = serve(ours)
    assert all(len(ids) > 4 for ids in tokens)


class Answers:
    """An allocator that gives one answer to every call."""

    def __init__(self, answer):
        self.answer = answer

    def allocate(self, owner, length):
        return self.answer

    def free(self, owner):
        """Forgets nothing: it knows nothing."""


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (Overlaps, ValueError, r"but slots 0 to \d+ belong to request '0'"),
        (lambda n: Answers(0), ValueError, r"returned slot 0, but slots 0 to \d+ belong to"),
        (lambda n: Answers(-8), ValueError, "slots -8 to .* are not all in a memory of 192"),
        (lambda n: Answers(190), ValueError, "slots 190 to .* are not all in a memory of 192"),
        (lambda n: Answers(4), ValueError, "not the first of a block: all reservations are multi"),
        (lambda n: Answers("0"), TypeError, "must return a slot or None, not '0'"),
        (lambda n: Answers(True), TypeError, "must return a slot or None, not True"),
    ],
)
def test_what_it_does_wrong_is_told(make, error, words):
    with pytest.raises(error, match=words):
        serve(ReservingScheduler(to_model_len=False, allocator=make))


@pytest.mark.parametrize(
    ("allocator", "words"),
    [
        (FirstFit(8), "must be the class itself"),
        (lambda n: object(), "has no method allocate"),
    ],
)
def test_what_cannot_be_asked_is_refused(allocator, words):
    with pytest.raises(TypeError, match=words):
        serve(ReservingScheduler(allocator=allocator))


def test_it_decides_the_fit_itself():
    with pytest.raises(ValueError, match="leave fit out"):
        ReservingScheduler("best", allocator=FirstFit)


def test_it_starts_over_with_the_engine():
    scheduler = ReservingScheduler(to_model_len=False, allocator=FirstFit)
    build(4, 8, Limits(8, 64, 32), scheduler=scheduler)
    first = scheduler.memory.own
    scheduler.start_over([])
    assert scheduler.memory.own is not first and scheduler.memory.num_slots == 32
