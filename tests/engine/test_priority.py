"""Priorities: who is admitted first, who gives way, and that nobody starves."""

import pytest

from llmserve_lab import PriorityScheduler, SamplingParams, Scheduler
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Limits
from tests.engine.counting_model import build
from tests.engine.reference import tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


def request(name, priority=0, max_tokens=1, prompt=(1, 1)):
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return Request(name, list(prompt), params, priority=priority)


def engine_of(scheduler, max_num_seqs=1, num_blocks=16):
    return build(num_blocks, 2, Limits(max_num_seqs, 64), scheduler=scheduler)


def order_of_ends(engine):
    ended = []
    while engine.has_work:
        ended += [event.request_id for event in engine.step() if event.finish_reason]
    return ended


def test_smaller_priorities_are_admitted_first_and_equal_ones_in_order():
    engine = engine_of(PriorityScheduler())
    for name, priority in (("a", 1), ("b", 0), ("c", -1), ("d", 0), ("e", 1), ("f", -1)):
        engine.add(request(name, priority))
    assert order_of_ends(engine) == ["c", "f", "b", "d", "a", "e"]


def test_waiting_long_enough_outweighs_a_priority():
    engine = engine_of(PriorityScheduler(aging=10.0))
    engine.add(request("old", priority=1))
    engine.clock.now = 9.0
    engine.add(request("urgent"))
    engine.clock.now = 11.0
    engine.add(request("urgent but late"))
    assert order_of_ends(engine) == ["urgent", "old", "urgent but late"]


@pytest.mark.parametrize(("aging", "starves"), [(5.0, False), (None, True)])
def test_a_stream_of_urgent_requests(aging, starves):
    """One urgent request arrives every second, and one is served every second."""
    engine = engine_of(PriorityScheduler(aging))
    engine.add(request("patient", priority=3))
    ended = []
    for second in range(100):
        engine.add(request(f"urgent {second}"))
        ended += [event.request_id for event in engine.step()]
        engine.clock.now += 1.0
    assert ("patient" not in ended) == starves
    if not starves:
        assert ended.index("patient") == 15  # behind those of its first 3 x 5 seconds
    order_of_ends(engine)


def test_the_running_request_that_ranks_last_gives_way():
    scheduler = PriorityScheduler()
    engine = engine_of(scheduler, max_num_seqs=3, num_blocks=4)
    requests = [request(name, p, max_tokens=5) for name, p in (("a", 5), ("b", 0), ("c", 0))]
    for one in requests:
        engine.add(one)
    engine.step()
    assert [r.request_id for r in scheduler.running] == ["b", "c", "a"]
    engine.step()
    assert [r.request_id for r in scheduler.preempted] == ["a"]
    assert order_of_ends(engine)[:2] == ["b", "c"]
    assert [r.num_preemptions for r in requests][1] == 0


def test_whoever_came_first_gives_way_to_what_is_more_urgent():
    """Running requests rank by priority, not by when they were admitted."""
    scheduler = PriorityScheduler()
    engine = engine_of(scheduler, max_num_seqs=3, num_blocks=4)
    engine.add(request("early", priority=2, max_tokens=6))
    engine.step()
    engine.add(request("urgent", priority=0, max_tokens=6))
    while not scheduler.preempted:
        engine.step()
    assert [r.request_id for r in scheduler.preempted] == ["early"]
    assert [r.request_id for r in scheduler.running] == ["urgent"]
    order_of_ends(engine)


def test_a_preempted_request_keeps_its_rank():
    scheduler = PriorityScheduler()
    engine = engine_of(scheduler, max_num_seqs=2, num_blocks=4)
    for name, priority in (("a", 0), ("b", 1)):
        engine.add(request(name, priority, max_tokens=6))
    engine.step()
    engine.add(request("urgent", priority=0))
    engine.add(request("later", priority=1))
    while not scheduler.preempted:
        engine.step()
    assert [r.request_id for r in scheduler.preempted] == ["b"]
    assert [r.request_id for r in scheduler.waiting] == ["urgent", "b", "later"]
    order_of_ends(engine)


def test_an_abort_in_the_middle_of_the_queue():
    engine = engine_of(PriorityScheduler())
    for number in range(6):
        engine.add(request(f"{number}", priority=number % 2))
    for name in ("0", "3"):
        engine.abort(name)
    ended = [event.request_id for event in engine.abort_asked()]
    assert ended == ["0", "3"]
    assert order_of_ends(engine) == ["2", "4", "1", "5"]
    assert not engine.scheduler.waiting


def test_generate_takes_priorities(make_llm):
    prompts = ["abc", "xyz", "uvw"]
    plain = make_llm().generate(prompts, GREEDY)
    llm = make_llm(max_num_seqs=1, scheduler=PriorityScheduler())
    outputs = llm.generate(prompts, GREEDY, priority=[2, 0, 1])
    assert tokens_of(outputs) == tokens_of(plain)
    starts = [output.metrics.first_scheduled for output in outputs]
    assert sorted(starts) == [starts[1], starts[2], starts[0]]
    (name,) = llm.add_request("abc", GREEDY, priority=1)
    urgent = list(llm.stream("xyz", GREEDY, priority=0))
    assert len(urgent) == 4
    events = llm.step()
    while llm.has_work:
        events += llm.step()
    assert {event.request_id for event in events} == {name}


@pytest.mark.parametrize(
    ("priority", "kind", "words"),
    [
        ([1], ValueError, "2 prompts came with 1 priorities"),
        ([1, 1.5], TypeError, "priority must be a whole number, not 1.5"),
        ("ab", TypeError, "priority must be a whole number, not 'ab'"),
        (True, TypeError, "priority must be a whole number"),
        (2**40, ValueError, "priority must be at most"),
    ],
)
def test_bad_priorities_are_refused_before_anything_is_queued(make_llm, priority, kind, words):
    llm = make_llm(scheduler=PriorityScheduler())
    for call in (llm.generate, llm.stream):
        with pytest.raises(kind, match=words):
            call(["abc", "xyz"], GREEDY, priority=priority)
    assert not llm.has_work


def test_a_scheduler_that_ignores_priority_says_so(make_llm):
    with pytest.raises(ValueError, match="Scheduler ignores priority"):
        make_llm().generate("abc", GREEDY, priority=1)

    class Mine(Scheduler):
        honours_priority = True

    assert make_llm(scheduler=Mine()).generate("abc", GREEDY, priority=1)[0].finished


@pytest.mark.parametrize(
    ("aging", "kind"), [(-1, ValueError), (float("inf"), ValueError), ("1", TypeError)]
)
def test_settings(aging, kind):
    with pytest.raises(kind, match="aging must be a"):
        PriorityScheduler(aging)
