"""Prompts that come together and begin alike: one computes the prefix, in the same step the others
go on from it. Whatever fails or is left out of the step, nobody reads what was not computed."""

import pytest

from llmserve_lab import (
    PriorityScheduler,
    SamplingParams,
    Scheduler,
    SchedulerError,
    StaticBatchingScheduler,
    SwapToHost,
)
from llmserve_lab.kv_cache import BlockPool
from tests.engine.reference import greedy_tokens, ids, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=6)
LONG = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
COMMON = list(range(1, 18))  # four blocks of 4 and a token
PROMPTS = [
    COMMON,
    [*COMMON, 40, 41],
    COMMON[:9],
    [*COMMON, 40, 41, 42, 43],
    [*COMMON[:12], 50, 51, 52, 53, 54, 55],
    [*COMMON[:12], 50, 51, 52, 53, 54, 56, 57],
    COMMON[:16],
    [30, 31, 32],
]
SCHEDULERS = {
    "first come first served": Scheduler,
    "never preempted": lambda: Scheduler(max_preemptions=0),
    "swapped": lambda: Scheduler(SwapToHost(100)),
    "priority": PriorityScheduler,
    "static batches": lambda: StaticBatchingScheduler(8),
}


@pytest.fixture(scope="module")
def expected(tiny):
    return [greedy_tokens(tiny.model, prompt, 6) for prompt in PROMPTS]


def first_steps(llm):
    """What each step ran of whose tokens: {request id: (start, tokens)}."""
    return [
        {item.request_id: (item.start, item.num_tokens) for item in step.scheduled}
        for step in llm.trace
    ]


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_what_prompts_have_in_common_is_computed_once(make_llm, expected, kind):
    llm = make_llm(enable_prefix_caching=True, trace=True, scheduler=SCHEDULERS[kind]())
    outputs = llm.generate(ids(*PROMPTS), GREEDY)
    assert tokens_of(outputs) == expected
    assert first_steps(llm)[0] == {
        "0": (0, 17), "1": (16, 3), "2": (8, 1), "3": (16, 5), "4": (12, 6), "5": (16, 3),
        "6": (12, 4), "7": (0, 3),
    }  # fmt: skip
    hits = [0, 16, 8, 16, 12, 16, 12, 0]
    assert [output.metrics.num_hit_tokens for output in outputs] == hits
    assert llm.trace[0].num_hit_tokens == llm.pool.prefix_cache_hits == sum(hits)
    assert llm.pool.prefix_cache_queries == sum(map(len, PROMPTS))
    assert max(llm.trace[0].block_refs) == 7


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("budget", [1, 5, 18, 64])
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_greedy_tokens_in_any_chunks(make_llm, expected, backend, budget, block_size):
    llm = make_llm(
        block_size=block_size,
        num_blocks=200 // block_size,
        max_num_batched_tokens=budget,
        enable_prefix_caching=True,
        attention_backend=backend,
    )
    for order in (1, -1):
        outputs = llm.generate(ids(*PROMPTS[::order]), GREEDY)
        assert tokens_of(outputs) == expected[::order]


@pytest.mark.parametrize("num_blocks", [7, 8, 13])
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_greedy_tokens_where_blocks_are_few(make_llm, expected, kind, num_blocks):
    llm = make_llm(
        num_blocks=num_blocks,
        max_num_batched_tokens=19,
        enable_prefix_caching=True,
        scheduler=SCHEDULERS[kind](),
    )
    for _ in range(2):
        assert tokens_of(llm.generate(ids(*PROMPTS), GREEDY)) == expected


@pytest.mark.parametrize("kv_cache_dtype", ["int8", "int4"])
def test_quantized_blocks_are_read_as_in_a_cold_engine(make_llm, kv_cache_dtype):
    """A block is quantized by the write that fills it, before anybody reads."""
    cold = [
        tokens_of(make_llm(kv_cache_dtype=kv_cache_dtype).generate(ids(prompt), GREEDY))[0]
        for prompt in PROMPTS
    ]
    llm = make_llm(kv_cache_dtype=kv_cache_dtype, enable_prefix_caching=True)
    assert tokens_of(llm.generate(ids(*PROMPTS), GREEDY)) == cold
    assert llm.pool.hit_rate > 0.5


def test_salts_keep_tenants_apart_within_a_step(make_llm, expected):
    llm = make_llm(enable_prefix_caching=True)
    salts = ["a", "b", "a", None]
    prompts = [
        {"prompt_token_ids": COMMON} | ({"cache_salt": salt} if salt else {}) for salt in salts
    ]
    outputs = llm.generate(prompts, GREEDY)
    assert tokens_of(outputs) == expected[:1] * 4
    assert [output.metrics.num_hit_tokens for output in outputs] == [0, 0, 16, 0]


def test_a_hash_that_is_always_the_same_within_a_step(make_llm, expected):
    llm = make_llm(enable_prefix_caching=True)
    llm.pool._hash = lambda data: b"same"
    assert tokens_of(llm.generate(ids(*PROMPTS[::-1]), GREEDY)) == expected[::-1]


def test_nothing_is_shared_without_prefix_caching(make_llm):
    llm = make_llm(trace=True)
    llm.generate(ids(COMMON, COMMON), GREEDY)
    assert first_steps(llm)[0] == {"0": (0, 17), "1": (0, 17)}


def test_a_scored_prompt_is_computed_by_itself_and_for_others(make_llm, expected):
    llm = make_llm(enable_prefix_caching=True)
    scored = SamplingParams(temperature=0, max_tokens=6, prompt_logprobs=0)
    outputs = llm.generate(ids(COMMON, COMMON, COMMON), [scored, scored, GREEDY])
    assert tokens_of(outputs) == expected[:1] * 3
    assert [output.metrics.num_hit_tokens for output in outputs] == [0, 0, 16]
    assert all(len(output.prompt_logprobs) == 17 for output in outputs[:2])


def test_continuations_go_on_from_a_prompt_that_was_shared(make_llm):
    params = SamplingParams(n=3, seed=5, max_tokens=9, ignore_eos=True)
    llm = make_llm(enable_prefix_caching=True)
    outputs = llm.generate(ids(COMMON, PROMPTS[1]), params)
    for prompt, output in zip((COMMON, PROMPTS[1]), outputs, strict=True):
        (alone,) = make_llm().generate(ids(prompt), params)
        assert [o.token_ids for o in output.outputs] == [o.token_ids for o in alone.outputs]
    assert outputs[1].metrics.num_hit_tokens == 16


class BreakdownError(Exception):
    pass


def break_down(monkeypatch, llm, after):
    """Make the cache fail at its write number `after`, once; layers before that are written."""
    write, left = llm.kv_cache.write, iter(range(after))

    def broken(*args):
        if next(left, None) is None:
            monkeypatch.setattr(llm.kv_cache, "write", write)
            raise BreakdownError
        write(*args)

    monkeypatch.setattr(llm.kv_cache, "write", broken)


@pytest.mark.parametrize("aborted", [(), (0,), (1,), (0, 1), (0, 4), (4,)])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_step_that_fails_leaves_nothing_that_was_not_computed(
    make_llm, expected, monkeypatch, kind, after, aborted
):
    """Those whose prefix was lost compute it themselves, also if who was to do so is gone."""
    llm = make_llm(enable_prefix_caching=True, scheduler=SCHEDULERS[kind]())
    names = [llm.add_request(prompt, GREEDY)[0] for prompt in ids(*PROMPTS)]
    break_down(monkeypatch, llm, after)
    with pytest.raises(BreakdownError):
        llm.step()
    assert llm.pool._prefix_of == {}
    assert all(not request.block_table for request in llm.scheduler.waiting)
    for index in aborted:
        llm.abort(names[index])
    events = []
    while llm.has_work:
        events += llm.step()
        llm.pool.check_integrity()
    for index, (name, tokens) in enumerate(zip(names, expected, strict=True)):
        mine = tuple(e.token_id for e in events if e.request_id == name if e.token_id is not None)
        assert mine == (() if index in aborted else tokens)


class Part(Scheduler):
    """A learner's own, that changes each batch in its own way."""

    def __init__(self, change, *args):
        super().__init__(*args)
        self.change = change

    def schedule(self):
        return self.change(self, super().schedule())


def without(name):
    return lambda scheduler, batch: [item for item in batch if item.request.request_id != name]


def one_token_of_the_first(scheduler, batch):
    return [batch[0]._replace(num_tokens=1), *batch[1:]]


def preempt_the_first(scheduler, batch):
    scheduler._preempt(batch[0].request)
    return batch[1:]


LEFT_OUT = {
    "the lender": without("0"),
    "most of the lender's tokens": one_token_of_the_first,
    "a lender that gave up its blocks": preempt_the_first,
}


@pytest.mark.parametrize("change", LEFT_OUT)
def test_a_prefix_that_a_learners_batch_leaves_out_is_named(make_llm, expected, change):
    llm = make_llm(enable_prefix_caching=True, scheduler=Part(LEFT_OUT[change]))
    names = [llm.add_request(prompt, GREEDY)[0] for prompt in ids(*PROMPTS[:2])]
    message = "'1' reads a prefix that request '0' was to compute in the same step: run all"
    with pytest.raises(SchedulerError, match=message) as error:
        llm.step()
    assert str(error.value).count("\n") == 0
    llm.scheduler.change = lambda scheduler, batch: batch
    events = []
    while llm.has_work:
        events += llm.step()
    for name, tokens in zip(names, expected, strict=False):
        assert tuple(event.token_id for event in events if event.request_id == name) == tokens


HARMLESS = {
    "another order": lambda scheduler, batch: batch[::-1],
    "the one who borrows": without("1"),
    "the first alone": lambda scheduler, batch: batch[:1],
    "the last alone": lambda scheduler, batch: batch[-1:],
    "both": lambda scheduler, batch: without("1")(scheduler, without("0")(scheduler, batch)),
}


@pytest.mark.parametrize("change", HARMLESS)
@pytest.mark.parametrize("swap", [False, True])
def test_a_learners_batch_may_leave_out_whoever_borrows(make_llm, tiny, change, swap):
    prompts = [PROMPTS[0], PROMPTS[1], PROMPTS[-1]]
    wanted = [greedy_tokens(tiny.model, prompt, 6) for prompt in prompts]
    scheduler = Part(HARMLESS[change], *([SwapToHost(50)] if swap else []))
    llm = make_llm(enable_prefix_caching=True, scheduler=scheduler)
    names = [llm.add_request(prompt, GREEDY)[0] for prompt in ids(*prompts)]
    events = llm.step()
    scheduler.change = lambda scheduler, batch: batch
    while llm.has_work:
        events += llm.step()
    for name, tokens in zip(names, wanted, strict=True):
        assert tuple(event.token_id for event in events if event.request_id == name) == tokens


@pytest.mark.parametrize("swap", [False, True])
def test_whoever_borrows_may_be_sent_back_in_the_same_step(make_llm, expected, swap):
    """Nothing of it is computed yet, so there is nothing to swap."""

    def send_back(scheduler, batch):
        kept = []
        for item in batch:
            if item.start and item.start == item.request.num_hit_tokens:
                scheduler._preempt(item.request)
            else:
                kept.append(item)
        return kept

    scheduler = Part(send_back, *([SwapToHost(50)] if swap else []))
    llm = make_llm(enable_prefix_caching=True, scheduler=scheduler)
    names = [llm.add_request(prompt, GREEDY)[0] for prompt in ids(*PROMPTS[:2])]
    events = llm.step()
    assert getattr(scheduler.preemption, "num_used", 0) == 0
    scheduler.change = lambda scheduler, batch: batch
    while llm.has_work:
        events += llm.step()
    for name, tokens in zip(names, expected, strict=False):
        assert tuple(event.token_id for event in events if event.request_id == name) == tokens


def test_a_learner_who_waits_after_all_computes_nothing(make_llm, expected):
    """schedule() was asked, and its answer thrown away."""

    def not_yet(scheduler, batch):
        scheduler.wake_at = scheduler.clock()
        return []

    llm = make_llm(enable_prefix_caching=True, scheduler=Part(not_yet))
    names = [llm.add_request(prompt, GREEDY)[0] for prompt in ids(*PROMPTS[:2])]
    assert llm.step() == []
    llm.abort(names[0])
    llm.scheduler.change, llm.scheduler.wake_at = lambda scheduler, batch: batch, None
    events = llm.step()
    while llm.has_work:
        events += llm.step()
    assert tuple(e.token_id for e in events if e.request_id == names[1]) == expected[1]


class MyPool(BlockPool):
    """From outside the package: who owns what is checked in every step."""


@pytest.mark.parametrize("scheduler", [Scheduler, lambda: Part(lambda scheduler, batch: batch)])
def test_a_learners_pool_and_scheduler_share_within_a_step_too(make_llm, expected, scheduler):
    pool = MyPool(64, 4, enable_prefix_caching=True)
    llm = make_llm(num_blocks=None, block_pool=pool, scheduler=scheduler())
    outputs = llm.generate(ids(*PROMPTS), GREEDY)
    assert tokens_of(outputs) == expected
    assert [o.metrics.num_hit_tokens for o in outputs] == [0, 16, 8, 16, 12, 16, 12, 0]


class Blind(BlockPool):
    """A match of one's own, which never finds anything."""

    def match(self, token_ids, salt=""):
        return [], []


def test_a_pool_with_a_match_of_its_own_says_what_is_found(make_llm, expected):
    llm = make_llm(num_blocks=None, block_pool=Blind(64, 4, enable_prefix_caching=True))
    outputs = llm.generate(ids(*PROMPTS), GREEDY)
    assert tokens_of(outputs) == expected
    assert llm.pool.prefix_cache_hits == 0


def test_a_write_into_a_block_that_is_lent_is_still_found(make_llm):
    """One reader is accounted for by the loan, another is not."""

    def take_over(scheduler, batch):
        lender, _, other = (item.request for item in batch)
        scheduler.pool.release(other.block_table[:1])
        scheduler.pool.share(lender.block_table[:1])
        other.block_table[0] = lender.block_table[0]
        return batch

    llm = make_llm(enable_prefix_caching=True, scheduler=Part(take_over))
    prompts = ids(PROMPTS[0], PROMPTS[1], PROMPTS[-1])
    names = [llm.add_request(prompt, GREEDY)[0] for prompt in prompts]
    with pytest.raises(SchedulerError, match="would write into a block that others read too"):
        llm.step()
    for name in names:
        llm.abort(name)
    llm.step()


def test_one_token_after_a_prefix_of_the_same_step(make_llm, expected, tiny):
    """Steps of single tokens read blocks of one token that the same step writes."""
    prompts = [[7], [7, 8], [7, 8, 9], [7, 8, 9]]
    llm = make_llm(block_size=1, enable_prefix_caching=True, trace=True)
    wanted = [greedy_tokens(tiny.model, prompt, 6) for prompt in prompts]
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == wanted
    assert first_steps(llm)[0] == {"0": (0, 1), "1": (1, 1), "2": (2, 1), "3": (2, 1)}


def test_aborts_in_later_steps_take_nothing_from_others(make_llm, tiny):
    llm = make_llm(enable_prefix_caching=True)
    prompts = [COMMON, PROMPTS[1], PROMPTS[3]]
    names = [llm.add_request(prompt, LONG)[0] for prompt in ids(*prompts)]
    events = llm.step()
    llm.abort(names[0])
    events += llm.step()
    llm.abort(names[1])
    while llm.has_work:
        events += llm.step()
    mine = tuple(event.token_id for event in events if event.request_id == names[2])
    (cold,) = make_llm().generate(ids(prompts[2]), LONG)
    assert mine == cold.outputs[0].token_ids


def test_a_draft_model_shares_within_a_step_too(make_llm, tiny, expected):
    """It computes what the target computes, in blocks of the same numbers."""
    llm = make_llm(enable_prefix_caching=True, draft=tiny, num_draft_tokens=3)
    outputs = llm.generate(ids(*PROMPTS), GREEDY)
    assert tokens_of(outputs) == expected
    assert [o.metrics.num_hit_tokens for o in outputs] == [0, 16, 8, 16, 12, 16, 12, 0]
    assert llm.metrics.acceptance_rate == 1
