"""Speculation without a model: random operations, block tables checked after each, every token the
one that follows from what lies in the blocks."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from llmserve_lab import PriorityScheduler, Scheduler, StaticBatchingScheduler, SwapToHost
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.engine.scheduler import Limits
from llmserve_lab.speculative.proposer import Proposals
from llmserve_lab.speculative.speculation import Drafts
from tests.engine.counting_model import VOCABULARY, build, next_token
from tests.engine.test_scheduler import SchedulerMachine


class Guesser:
    """Right but for every `every`-th text length, where it is wrong or silent."""

    def __init__(self, every):
        self.every = every

    def propose(self, token_ids, num_tokens):
        tokens = list(token_ids)
        while len(tokens) < len(token_ids) + num_tokens:
            guess = next_token(tokens)
            if len(tokens) % self.every == 0:
                guess = (guess + 1) % VOCABULARY
            tokens.append(guess)
        return tokens[len(token_ids) : len(token_ids) + len(tokens) % (num_tokens + 1) + 1][
            :num_tokens
        ]


class Lagging(Proposals):
    """As a draft model: the last right draft has to be computed again."""

    def num_computed(self, num_accepted, num_drafts):
        return min(num_accepted, num_drafts - 1)


class SpeculatingMachine(SchedulerMachine):
    """The machine of all schedulers, with drafts."""

    temperature = 0  # a draft that is compared is right or wrong; chance would judge others

    @precondition(lambda self: self.engine is None)
    @rule(
        block_size=st.integers(1, 4),
        num_blocks=st.integers(1, 12),
        budget=st.integers(1, 12),
        max_num_seqs=st.integers(1, 4),
        prefix_caching=st.booleans(),
        count=st.integers(1, 5),
        every=st.integers(1, 6),
        kind=st.sampled_from([Proposals, Lagging]),
    )
    def start(
        self, block_size, num_blocks, budget, max_num_seqs, prefix_caching, count, every, kind
    ):
        limits = Limits(max_num_seqs, budget)
        self.engine = build(
            num_blocks, block_size, limits, prefix_caching, self.scheduler(limits),
            lambda scheduler: Drafts(kind(Guesser(every), VOCABULARY), scheduler, count),
        )  # fmt: skip
        self.longest = num_blocks * block_size

    @invariant()
    def no_draft_outlives_its_step(self):
        for request in self.requests.values():
            assert request.draft_token_ids == []
        for request in self.engine.requests.values() if self.engine else ():
            assert request.num_computed_tokens <= len(request.token_ids)
            assert len(request.prefixes) * self.engine.scheduler.pool.block_size <= (
                request.num_computed_tokens
            )

    @invariant()
    def drafts_leave_no_blocks_behind(self):
        scheduler = self.engine.scheduler if self.engine else None
        if scheduler is None or isinstance(scheduler, StaticBatchingScheduler):
            return
        pool = scheduler.pool
        for request in scheduler.running:
            if not scheduler._must_finish(request) and request not in self.left_out:
                reached = max(request.num_computed_tokens, request.num_reached_tokens)
                assert len(request.block_table) <= pool.blocks_for(reached)


def machine(make_scheduler, examples=50):
    kind = type("Machine", (SpeculatingMachine,), {"scheduler": staticmethod(make_scheduler)})
    kind.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=40,
        suppress_health_check=list(HealthCheck),
    )
    return kind.TestCase


TestFirstComeFirstServed = machine(lambda limits: Scheduler(), examples=80)
TestNeverPreempted = machine(lambda limits: Scheduler(max_preemptions=0), examples=25)
TestSwapped = machine(lambda limits: Scheduler(SwapToHost(num_blocks=100)))
TestSwappedIfThereIsRoom = machine(lambda limits: Scheduler(SwapToHost(num_blocks=2)), examples=25)
TestByPriority = machine(lambda limits: PriorityScheduler(aging=1.0), examples=25)
TestStaticBatches = machine(
    lambda limits: StaticBatchingScheduler(
        min(limits.max_num_seqs, limits.max_num_batched_tokens), max_wait=0.5
    ),
    examples=25,
)


def speculating(num_blocks, block_size, budget, count, every=10**9, **options):
    return build(
        num_blocks, block_size, Limits(8, budget), options.pop("prefix_caching", False),
        options.pop("scheduler", None),
        lambda scheduler: Drafts(Proposals(Guesser(every), VOCABULARY), scheduler, count),
    )  # fmt: skip


def greedy(max_tokens):
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def granted(engine):
    """How many drafts each request of the next step gets."""
    batch = engine.scheduler.schedule()
    return {r.request_id: n for r, n in engine.speculation.grants.give(batch).items()}


@pytest.mark.parametrize(
    ("budget", "wanted"), [(3, {}), (4, {"0": 1}), (6, {"0": 1, "1": 1, "2": 1}),
                           (8, {"0": 2, "1": 2, "2": 1}), (99, {"0": 4, "1": 4, "2": 4})],
)  # fmt: skip
def test_what_is_left_of_a_step_is_shared_out_evenly(budget, wanted):
    engine = speculating(40, 2, budget, 4)
    for name in "012":
        engine.add(Request(name, [1], greedy(20)))
    assert granted(engine) == wanted


def test_drafts_shrink_to_the_free_blocks_and_preempt_nobody():
    engine = speculating(6, 2, 99, 8)
    for name in "01":
        engine.add(Request(name, [1, 1], greedy(6)))
    assert granted(engine) == {"0": 6 - 1, "1": 2}
    assert engine.scheduler.preempted == []
    engine.speculation.grants.take_back()
    assert [len(r.block_table) for r in engine.scheduler.running] == [1, 1]


def test_no_more_drafts_than_tokens_can_still_come():
    engine = speculating(40, 2, 99, 8)
    for name, most in (("0", 1), ("1", 2), ("2", 4), ("3", 30)):
        engine.add(Request(name, [1], greedy(most)))
    assert granted(engine) == {"1": 1, "2": 3, "3": 8}


def test_who_waits_for_a_prompt_to_part_gets_none():
    engine = speculating(40, 2, 99, 4)
    first, second = (Request(f"{n}", [1, 1], greedy(9)) for n in range(2))
    first.forks = [second]
    engine.add(first)
    assert granted(engine) == {}
