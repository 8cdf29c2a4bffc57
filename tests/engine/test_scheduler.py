"""Schedulers and block pool without a model: random operations, checked after each."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmserve_lab.engine.errors import SchedulerError
from llmserve_lab.engine.preemption import SwapToHost
from llmserve_lab.engine.priority import PriorityScheduler
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.engine.scheduler import Limits, Scheduler
from llmserve_lab.engine.static_scheduler import StaticBatchingScheduler
from llmserve_lab.engine.validate import validate
from tests.engine.counting_model import (
    LONGEST,
    VOCABULARY,
    BreakdownError,
    build,
    expected_output,
)


class SchedulerMachine(RuleBasedStateMachine):
    """Adds, steps and aborts in any order, steps that break off and batches that a learner cuts
    down among them; every step is checked, every output is the right one."""

    temperature = 1.0  # of the requests; whoever chooses tokens here does not look at it

    @staticmethod
    def scheduler(limits):
        return Scheduler()

    def __init__(self):
        super().__init__()
        self.engine, self.requests = None, {}
        self.left_out = set()  # requests that got blocks for a step which a learner cut down

    @precondition(lambda self: self.engine is None)
    @rule(
        block_size=st.integers(1, 4),
        num_blocks=st.integers(1, 12),
        budget=st.integers(1, 9),
        max_num_seqs=st.integers(1, 4),
        prefix_caching=st.booleans(),
    )
    def start(self, block_size, num_blocks, budget, max_num_seqs, prefix_caching):
        limits = Limits(max_num_seqs, budget)
        scheduler = self.scheduler(limits)
        self.engine = build(num_blocks, block_size, limits, prefix_caching, scheduler)
        self.longest = num_blocks * block_size

    @precondition(lambda self: self.engine is not None)
    @rule(
        prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=LONGEST),
        max_tokens=st.integers(1, LONGEST),
        priority=st.integers(-1, 1),
        delay=st.sampled_from([0.0, 0.4, 1.0]),
    )
    def add(self, prompt, max_tokens, priority, delay):
        prompt = prompt[: self.longest - 1] or [1]
        if len(prompt) >= self.longest:
            return
        self.engine.clock.now += delay
        params = SamplingParams(temperature=self.temperature, max_tokens=max_tokens)
        request = Request(f"{len(self.requests)}", prompt, params, priority=priority)
        self.requests[request.request_id] = request
        self.engine.add(request)

    @precondition(lambda self: self.requests)
    @rule(choice=st.integers(0, 100), kept=st.integers(1, LONGEST), own=st.integers(0, 4))
    def add_alike(self, choice, kept, own):
        """A prompt that begins like an earlier one, or is the same."""
        earlier = list(self.requests.values())[choice % len(self.requests)].prompt_token_ids
        self.add(earlier[:kept] + [own] * (own > 0), 2, 0, 0.0)

    @precondition(lambda self: self.engine is not None and self.engine.has_work)
    @rule(writes=st.integers(0, 9))
    def break_off(self, writes):
        """A step fails after some of its writes, if it has more. Nothing is computed then."""
        self.engine.runner.breaks_after = writes
        before = {request: len(request.token_ids) for request in self.requests.values()}
        try:
            self.engine.step()
            self.engine.wait()
        except BreakdownError:
            assert before == {r: len(r.token_ids) for r in self.requests.values()}
        self.engine.runner.breaks_after = None

    @precondition(lambda self: self.engine is not None and self.engine.has_work)
    @rule(choice=st.integers(0, 20), tokens=st.integers(0, 3))
    def step_as_a_learner_would(self, choice, tokens):
        """Leave one request out of the step, or run only some of its tokens."""
        scheduler, whole = self.engine.scheduler, self.engine.scheduler.schedule

        def part():
            batch = whole()
            if len(batch) > 1:
                item = batch.pop(choice % len(batch))
                self.left_out.add(item.request)
                if 0 < tokens < item.num_tokens:
                    batch.append(item._replace(num_tokens=tokens))
            return batch

        scheduler.schedule = part
        try:
            self.engine.step()
            self.engine.wait()
        except SchedulerError as error:
            assert "was to compute in the same step" in str(error)
            self.left_out |= set(scheduler.running)
        del scheduler.schedule

    @precondition(lambda self: self.engine is not None and self.engine.has_work)
    @rule()
    def step(self):
        before = self._computed()
        events = self.engine.step()
        for event in events:
            request = self.requests[event.request_id]
            assert request.token_ids[request.num_prompt_tokens + event.index] == event.token_id
        self.engine.wait()
        assert events or self._computed() != before, "a step without any progress"

    @precondition(lambda self: self.engine is not None and self.engine.has_work)
    @rule(choice=st.integers(0, 100))
    def abort(self, choice):
        names = list(self.engine.requests)
        self.engine.abort(names[choice % len(names)])
        (event,) = self.engine.abort_asked()
        assert event.finish_reason == "abort"

    def _computed(self):
        requests = self.engine.requests.values()
        return self.engine.clock(), [(r.num_computed_tokens, r.num_preemptions) for r in requests]

    @invariant()
    def blocks_add_up(self):
        if self.engine is None:
            return
        scheduler, pool = self.engine.scheduler, self.engine.scheduler.pool
        pool.check_integrity()
        owned = [block for r in self.engine.requests.values() for block in r.block_table]
        assert list(pool.refs()) == [owned.count(block) for block in range(pool.num_blocks)]
        assert pool.num_free + pool.num_used == pool.num_blocks
        assert pool.num_used == len(set(owned))
        assert set(pool.cached()) <= {b for b, refs in enumerate(pool.refs()) if refs == 0}
        assert all(not request.block_table for request in scheduler.waiting)
        assert len(scheduler.running) <= scheduler.limits.max_num_seqs
        for request in scheduler.running:
            assert len(request.block_table) >= pool.blocks_for(request.num_computed_tokens)

    @invariant()
    def what_can_be_found_was_computed(self):
        if self.engine is None:
            return
        for block, prefix in self.engine.scheduler.pool._prefix_of.items():
            assert tuple(self.engine.runner.blocks[block]) == prefix.tokens

    @invariant()
    def every_request_is_in_one_place(self):
        if self.engine is None:
            return
        scheduler = self.engine.scheduler
        placed = [r.request_id for r in (*scheduler.waiting, *scheduler.running)]
        assert sorted(placed) == sorted(self.engine.requests)

    @invariant()
    def nobody_gives_way_without_end(self):
        for request in self.requests.values():
            assert request.num_preemptions <= self.engine.scheduler.max_preemptions

    @invariant()
    def host_memory_is_bounded_and_of_live_requests(self):
        preemption = self.engine.scheduler.preemption if self.engine else None
        if isinstance(preemption, SwapToHost):
            assert preemption.num_used <= preemption.num_blocks
            waiting = {r.request_id for r in self.engine.scheduler.waiting}
            assert set(preemption._saved) <= waiting

    @invariant()
    def outputs_are_right(self):
        for request in self.requests.values():
            wanted = expected_output(
                request.prompt_token_ids, request.params.max_tokens, self.longest
            )
            if request.finish_reason in ("stop", "length"):
                assert request.output_token_ids == wanted
            else:
                assert request.output_token_ids == wanted[: request.num_output_tokens]

    def teardown(self):
        if self.engine is None:
            return
        # Each step brings a request on, waits, or computes again what one of few preemptions lost.
        tokens = sum(len(r.prompt_token_ids) + r.params.max_tokens for r in self.requests.values())
        bound = tokens * (1 + self.engine.scheduler.max_preemptions) + len(self.requests)
        for _ in range(bound):
            if not self.engine.has_work:
                break
            self.step()
            self.blocks_add_up()
        self.outputs_are_right()
        assert not self.engine.has_work, f"unfinished after {bound} steps"
        assert self.engine.scheduler.pool.num_used == 0
        assert all(request.finish_reason for request in self.requests.values())


def machine(make_scheduler, examples=60):
    """The machine's test case for one kind of scheduler."""
    kind = type("Machine", (SchedulerMachine,), {"scheduler": staticmethod(make_scheduler)})
    kind.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=40,
        suppress_health_check=list(HealthCheck),
    )
    return kind.TestCase


TestFirstComeFirstServed = machine(lambda limits: Scheduler())
TestNeverPreempted = machine(lambda limits: Scheduler(max_preemptions=0), examples=30)
TestPreemptedOnce = machine(lambda limits: Scheduler(max_preemptions=1), examples=30)
TestSwapped = machine(lambda limits: Scheduler(SwapToHost(num_blocks=100)))
TestSwappedIfThereIsRoom = machine(lambda limits: Scheduler(SwapToHost(num_blocks=2)), examples=30)
TestByPriority = machine(lambda limits: PriorityScheduler(aging=1.0))
TestByPriorityAlone = machine(
    lambda limits: PriorityScheduler(None, SwapToHost(num_blocks=4), max_preemptions=2), examples=30
)
TestStaticBatches = machine(
    lambda limits: StaticBatchingScheduler(
        min(limits.max_num_seqs, limits.max_num_batched_tokens), max_wait=0.5
    )
)


def test_the_last_one_in_is_preempted_and_comes_back_first():
    engine = build(4, 2, Limits(8, 64), prefix_caching=False)
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    requests = [Request(f"{i}", [1, 1], params) for i in range(3)]
    for request in requests:
        engine.add(request)
    engine.step()
    engine.add(Request("late", [1], SamplingParams(max_tokens=1)))
    engine.step()  # three of four blocks are full, and each request needs another one
    assert [r.request_id for r in engine.scheduler.preempted] == ["2"]
    assert [r.request_id for r in engine.scheduler.waiting] == ["2", "late"]
    assert [r.request_id for r in engine.scheduler.running] == ["0", "1"]
    assert [len(r.block_table) for r in requests] == [2, 2, 0]


def test_decodes_go_before_new_prompts_and_a_long_prompt_is_cut():
    engine = build(20, 4, Limits(8, 5), prefix_caching=False)
    engine.add(Request("short", [1, 2, 3], SamplingParams(max_tokens=9, ignore_eos=True)))
    engine.step()
    engine.add(Request("long", [1] * 10, SamplingParams(max_tokens=1)))
    seen = []
    for _ in range(3):
        batch = engine.scheduler.schedule()
        validate(batch, engine.scheduler, engine.requests)
        seen.append([(i.request.request_id, i.start, i.num_tokens) for i in batch])
        engine._commit(batch, engine.runner.run(batch), 0.0)
    assert seen == [
        [("short", 3, 1), ("long", 0, 4)],
        [("short", 4, 1), ("long", 4, 4)],
        [("short", 5, 1), ("long", 8, 2)],
    ]


def test_an_engine_step_without_requests_does_nothing():
    engine = build(4, 2, Limits(8, 64), prefix_caching=False)
    assert engine.step() == []


def test_a_request_id_under_way_is_refused():
    engine = build(4, 2, Limits(8, 64), prefix_caching=False)
    engine.add(Request("same", [1], SamplingParams()))
    with pytest.raises(ValueError, match="'same'"):
        engine.add(Request("same", [1], SamplingParams()))
    assert len(engine.scheduler.waiting) == 1
