"""The greedy tokens are those of the model alone, whatever the draft and whatever happens."""

import random

import pytest

from llmserve_lab import LLM, PromptLookup, SamplingParams, SwapToHost
from tests.conftest import assert_as_new
from tests.engine.reference import greedy_tokens, ids, tokens_of
from tests.engine.test_every_scheduler import SCHEDULERS, SendsBackOften

MAX_TOKENS = 12
GREEDY = SamplingParams(temperature=0, max_tokens=MAX_TOKENS)
LONG = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def prompts():
    source = random.Random(1)
    return [[source.randrange(1, 64) for _ in range(n)] for n in (1, 3, 4, 5, 8, 9, 16, 17, 30)]


@pytest.fixture(scope="module")
def expected(tiny, prompts):
    return [greedy_tokens(tiny.model, prompt, MAX_TOKENS) for prompt in prompts]


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("draft", ["near", "far"])
def test_any_number_of_drafts(make_spec, prompts, expected, draft, count):
    llm = make_spec(draft, num_draft_tokens=count, num_blocks=128)
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected
    metrics = llm.metrics
    assert 0 < metrics.proposed_tokens <= count * metrics.drafted_sequences
    assert metrics.accepted_tokens <= metrics.judged_tokens <= metrics.proposed_tokens
    assert draft == "far" or metrics.accepted_tokens > 0


@pytest.mark.parametrize("draft", ["same", "near"])
@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("budget", [2, 7, 2048])
@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 45), (3, 16), (16, 4)])
def test_blocks_chunks_and_prefixes(
    make_spec, prompts, expected, block_size, num_blocks, budget, prefix_caching, draft
):
    llm = make_spec(
        draft, num_draft_tokens=3, block_size=block_size, num_blocks=num_blocks,
        max_num_batched_tokens=budget, enable_prefix_caching=prefix_caching,
    )  # fmt: skip
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected
    assert tokens_of(llm.generate(ids(*prompts[::-1]), GREEDY)) == expected[::-1]


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler(make_spec, prompts, expected, name, prefix_caching):
    llm = make_spec(
        num_blocks=11, max_num_batched_tokens=9, scheduler=SCHEDULERS[name](),
        enable_prefix_caching=prefix_caching,
    )  # fmt: skip
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_preemption_at_every_step(make_spec, prompts, expected, every, prefix_caching, swap):
    scheduler = SendsBackOften(every, SwapToHost(200) if swap else None)
    llm = make_spec(num_blocks=200, enable_prefix_caching=prefix_caching, scheduler=scheduler)
    outputs = llm.generate(ids(*prompts), GREEDY)
    assert tokens_of(outputs) == expected
    assert all(output.metrics.num_preemptions > 0 for output in outputs[1:])
    assert llm.metrics.accepted_tokens > 0


def test_reserved_memory(make_spec, prompts, expected):
    from llmserve_lab import ReservingScheduler

    scheduler = ReservingScheduler(to_model_len=False)
    llm = make_spec(num_blocks=64, scheduler=scheduler, trace=True)
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected
    assert llm.metrics.accepted_tokens > 0
    for step, seen in zip(llm.trace, scheduler.maps, strict=True):
        views = (*step.running, *step.finished)
        used = {region.owner: region.used for region in seen.regions if region.owner is not None}
        assert used == {view.request_id: view.num_computed_tokens for view in views}


def test_right_drafts_save_steps(make_spec, make_llm):
    """With the target for its own draft, each step brings `num_draft_tokens` + 1 tokens."""
    alone, llm = make_llm(), make_spec("same", num_draft_tokens=3)
    params = SamplingParams(temperature=0, max_tokens=17, ignore_eos=True)
    assert tokens_of(alone.generate("abc", params)) == tokens_of(llm.generate("abc", params))
    assert alone.metrics.steps == 17
    assert llm.metrics.steps == 1 + 16 // 4
    assert llm.metrics.acceptance_rate == llm.metrics.acceptance_probability == 1
    assert llm.metrics.mean_accepted_length == 4


def test_prefix_hits_serve_both_models(make_spec, tiny):
    """The draft finds its own keys and values in the blocks that it shares."""
    prompt = list(range(1, 30))
    llm = make_spec("same", enable_prefix_caching=True, num_draft_tokens=3)
    for _ in range(2):
        (output,) = llm.generate(ids(prompt), GREEDY)
        assert output.outputs[0].token_ids == greedy_tokens(tiny.model, prompt, MAX_TOKENS)
    assert output.metrics.num_hit_tokens == 28
    again = [*prompt, *output.outputs[0].token_ids, 5]
    (output,) = llm.generate(ids(again), GREEDY)
    assert output.metrics.num_hit_tokens >= 36  # what was accepted is found too
    assert output.outputs[0].token_ids == greedy_tokens(tiny.model, again, MAX_TOKENS)
    assert llm.metrics.acceptance_rate == 1  # a wrong key in the draft's cache would show here


@pytest.mark.parametrize("seed", range(4))
def test_aborts_free_everything_by_the_next_step(make_spec, prompts, tiny, seed):
    source = random.Random(seed)
    llm = make_spec(num_blocks=24, max_num_batched_tokens=12, enable_prefix_caching=bool(seed % 2))
    alive = {name: p for p in prompts for name in llm.add_request(ids(p)[0], LONG)}
    got = {name: [] for name in alive}
    while alive:
        if source.random() < 0.3:
            llm.abort(source.choice(sorted(alive)))
        for event in llm.step():
            if event.token_id is not None:
                got[event.request_id].append(event.token_id)
            if event.finish_reason:
                prompt = alive.pop(event.request_id)
                wanted = greedy_tokens_long(tiny, prompt)
                assert tuple(got[event.request_id]) == wanted[: len(got[event.request_id])]
        held = [block for r in llm._engine.requests.values() for block in r.block_table]
        assert sum(llm.pool.refs()) == len(held)
        llm.pool.check_integrity()


def greedy_tokens_long(tiny, prompt):
    """Past the end-of-text token too."""
    llm = LLM(tiny, num_blocks=64, block_size=4)
    (output,) = llm.generate(ids(prompt), LONG)
    assert_as_new(llm)
    return output.outputs[0].token_ids


def test_lookups_and_the_bundled_pair():
    """Real text, where many drafts are right; the whole engine in float32."""
    text = ["def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n", "import os\nimport sys\n"]
    params = SamplingParams(temperature=0, max_tokens=24)
    settings = {"dtype": "float32", "num_blocks": 32}
    wanted = tokens_of(LLM("lab-target", **settings).generate(text, params))
    for draft in ("lab-draft", PromptLookup()):
        llm = LLM("lab-target", draft=draft, **settings)
        assert tokens_of(llm.generate(text, params)) == wanted
        assert llm.metrics.accepted_tokens > 5
        assert llm.metrics.steps < 24
        assert_as_new(llm)
