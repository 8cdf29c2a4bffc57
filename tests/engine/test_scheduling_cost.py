"""What a step costs, counted in calls: linear in running requests, blind to waiting ones."""

import sys

import pytest

from llmserve_lab import PriorityScheduler, SamplingParams, Scheduler, StaticBatchingScheduler
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.request_queue import RequestQueue
from llmserve_lab.engine.scheduler import Limits
from llmserve_lab.engine.validate import validate
from llmserve_lab.engine.watchdog import Watchdog
from llmserve_lab.kv_cache import BlockPool
from llmserve_lab.kv_cache.prefix import blake2b
from tests.engine.counting_model import build

KINDS = {
    "fcfs": lambda running: Scheduler(),
    "priority": lambda running: PriorityScheduler(),
    "static": lambda running: StaticBatchingScheduler(running),
}
PARAMS = SamplingParams(max_tokens=500, ignore_eos=True)


class Counted(Request):
    """A request that counts how often its fields are looked at."""

    looks = 0

    def __getattribute__(self, name):
        Counted.looks += 1
        return super().__getattribute__(name)


def calls_of(work):
    """Function calls, those into C included, and looks at a request while `work` runs."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    Counted.looks = 0
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count, Counted.looks


class Server:
    """`running` requests under way and `queued` ones behind them."""

    def __init__(self, kind, running, queued):
        self.scheduler = KINDS[kind](running)
        pool = BlockPool(running * 40, 16)
        self.scheduler.bind(pool, Limits(running, 10**6), lambda: 0.0)
        self.requests, self.watchdog = {}, Watchdog()
        for number in range(running + queued):
            request = Counted(f"{number}", [1] * 20, PARAMS)
            self.requests[request.request_id] = request
            self.scheduler.add(request)
        self.step()

    def step(self):
        batch = self.scheduler.schedule()
        validate(batch, self.scheduler, self.requests)
        self.watchdog.note(batch, self.requests)
        self.scheduler.commit(batch)
        for item in batch:
            item.request.token_ids.append(1)

    def turn_over(self):
        """One request ends, and the next one starts."""
        self.scheduler.remove(self.scheduler.running[0])
        self.step()


@pytest.mark.parametrize("kind", KINDS)
def test_100_000_queued_requests_do_not_change_the_work_of_a_step(kind):
    few, many = Server(kind, 16, 10), Server(kind, 16, 100_000)
    for _ in range(3):
        assert calls_of(few.step) == calls_of(many.step)
    for _ in range(3):
        a, b = calls_of(few.turn_over), calls_of(many.turn_over)
        assert b[0] <= a[0] + 50, "a heap of 100,000 is 17 levels deep"
        assert b[1] <= a[1] + 200


@pytest.mark.parametrize("kind", KINDS)
def test_an_abort_among_100_000_is_no_search(kind):
    few, many = Server(kind, 16, 10), Server(kind, 16, 100_000)
    a, b = (calls_of(lambda s=s: s.scheduler.remove(s.requests["20"])) for s in (few, many))
    assert a == b


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_of_a_step_is_linear_in_the_running_requests(kind):
    calls = [calls_of(Server(kind, running, 10).step)[0] for running in (64, 128, 256)]
    assert calls[2] - calls[1] <= 2.1 * (calls[1] - calls[0])
    assert calls[2] < 4.1 * calls[0]


def test_a_step_of_the_engine_is_blind_to_the_queue_too():
    engines = []
    for queued in (10, 10_000):
        engine = build(600, 16, Limits(16, 10**6))
        engine.clock.now = 1.0
        for number in range(16 + queued):
            engine.add(Request(f"{number}", [1] * 20, PARAMS))
        engine.step()
        engines.append(engine)
    few, many = engines
    for _ in range(3):
        assert calls_of(few.step) == calls_of(many.step)


def test_the_count_sees_a_scan():
    class Scanning(Scheduler):
        def schedule(self):
            assert all(request.priority == 0 for request in self.waiting)
            return super().schedule()

    KINDS["scanning"] = lambda running: Scanning()
    try:
        few, many = Server("scanning", 4, 10), Server("scanning", 4, 1000)
    finally:
        del KINDS["scanning"]
    assert calls_of(many.step)[1] > calls_of(few.step)[1] + 900


def test_the_head_of_a_queue_is_found_without_a_scan():
    class Counting(RequestQueue):
        seen = 0

        def __iter__(self):
            for request in super().__iter__():
                self.seen += 1
                yield request

    queue = Counting(Request(f"{n}", [1], PARAMS) for n in range(1000))
    assert queue[0].request_id == "0"
    assert queue.seen == 1


def test_a_head_that_does_not_fit_is_hashed_once_however_long_it_waits():
    hashed = []

    def count(data):
        hashed.append(data)
        return blake2b(data)

    pool = BlockPool(20, 4, enable_prefix_caching=True, hash=count)
    scheduler = Scheduler()
    scheduler.bind(pool, Limits(8, 10**6), lambda: 0.0)
    first = Request("first", [1] * 40, SamplingParams(max_tokens=30, ignore_eos=True))
    head = Request("head", [1] * 32 + [2] * 41, SamplingParams(max_tokens=2, ignore_eos=True))

    def step():
        batch = scheduler.schedule()
        scheduler.commit(batch)
        for item in batch:
            item.request.token_ids.append(1)
        return batch

    scheduler.add(first)
    step()
    scheduler.add(head)
    for number in range(20):
        before = len(hashed)
        assert [item.request for item in step()] == [first]
        if number:
            assert len(hashed) - before <= 1, "only the running request's new block"
    scheduler.remove(first)
    assert [item.start for item in step()] == [32], "and it finds what is cached"


def test_an_abort_costs_the_same_however_many_are_open(make_llm):
    costs = []
    for open_requests in (3, 200):
        llm = make_llm()
        names = [llm.add_request({"prompt_token_ids": [1, 2]})[0] for _ in range(open_requests)]
        costs.append(calls_of(lambda llm=llm: llm.abort("1"))[0])
        for name in names:
            llm.abort(name)
        llm.step()
    assert costs[0] == costs[1]


def test_nothing_is_kept_of_continuations_that_ended(make_llm):
    llm = make_llm()
    params = SamplingParams(n=3, max_tokens=4, ignore_eos=True)
    llm.generate(["ab", "cd"], params)
    llm.add_request("abc", params)
    llm.step()
    llm.abort("2")
    llm.step()
    stream = llm.stream("abc", params)
    next(stream)
    stream.close()
    assert llm._calls.members("2") == llm._calls.members("3") == []
    assert len(llm._calls._families) == 0
