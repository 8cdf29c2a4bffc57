"""Greedy tokens equal transformers' generate, whatever the batch, the blocks and the cache do."""

import random

import pytest
import torch

from llmserve_lab import SamplingParams
from llmserve_lab.attention.backend import Case, working
from tests.engine.reference import greedy_tokens, ids, tokens_of

MAX_TOKENS = 12
GREEDY = SamplingParams(temperature=0, max_tokens=MAX_TOKENS)


@pytest.fixture(scope="module")
def prompts():
    """Lengths around every block size used here."""
    source = random.Random(0)
    lengths = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 30)
    return [[source.randrange(1, 64) for _ in range(length)] for length in lengths]


@pytest.fixture(scope="module")
def expected(tiny, prompts):
    return [greedy_tokens(tiny.model, prompt, MAX_TOKENS) for prompt in prompts]


def test_the_reference_says_something(expected):
    """Without variety, equality would prove little."""
    assert len(set(expected)) > len(expected) // 2
    assert max(len(set(tokens)) for tokens in expected) > 4


def test_alone(make_llm, prompts, expected):
    llm = make_llm()
    for prompt, tokens in zip(prompts, expected, strict=True):
        assert tokens_of(llm.generate(ids(prompt)[0], GREEDY)) == [tokens]


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
@pytest.mark.parametrize("budget", [1, 3, 7, 2048])
def test_in_a_batch(make_llm, prompts, expected, block_size, budget, prefix_caching):
    llm = make_llm(
        block_size=block_size,
        num_blocks=600 // block_size,
        max_num_batched_tokens=budget,
        enable_prefix_caching=prefix_caching,
    )
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected


@pytest.mark.parametrize("block_size", [8, 32, 64, 128])
def test_in_blocks_of_any_size(make_llm, prompts, expected, block_size):
    for prefix_caching in (False, True):
        llm = make_llm(
            block_size=block_size,
            num_blocks=12,
            max_num_batched_tokens=7,
            enable_prefix_caching=prefix_caching,
        )
        assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected


@pytest.mark.parametrize("max_num_seqs", [1, 2, 5])
def test_with_fewer_sequences_at_once(make_llm, prompts, expected, max_num_seqs):
    llm = make_llm(max_num_seqs=max_num_seqs, trace=True)
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected
    assert max(len(step.scheduled) for step in llm.trace) == max_num_seqs


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 45), (3, 15), (4, 11), (16, 4)])
def test_under_preemption(make_llm, prompts, expected, block_size, num_blocks, prefix_caching):
    llm = make_llm(
        block_size=block_size,
        num_blocks=num_blocks,
        max_num_batched_tokens=7,
        enable_prefix_caching=prefix_caching,
    )
    outputs = llm.generate(ids(*prompts), GREEDY)
    assert tokens_of(outputs) == expected
    assert sum(output.metrics.num_preemptions for output in outputs) > 0


@pytest.mark.parametrize("backend", working(Case(torch.device("cpu"), torch.float32)))
@pytest.mark.parametrize("budget", [5, 2048])
def test_every_attention_backend(make_llm, prompts, expected, backend, budget):
    """Prefill chunks, decodes, scattered blocks and readmissions in one run."""
    llm = make_llm(num_blocks=12, max_num_batched_tokens=budget, attention_backend=backend)
    for _ in range(2):  # the second run finds the free blocks in another order
        assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected


@pytest.mark.parametrize("num_blocks", range(4, 9))
def test_preempted_at_every_distance_from_a_block_border(make_llm, tiny, num_blocks):
    """Two requests that grow together until one must go, with room for fewer and fewer tokens."""
    prompts = [[5, 9, 2, 7], [8, 3, 1, 6, 4]]
    llm = make_llm(block_size=4, num_blocks=num_blocks, enable_prefix_caching=True)
    params = SamplingParams(temperature=0, max_tokens=11, ignore_eos=True, min_tokens=11)
    cold = [make_llm().generate(ids(prompt)[0], params)[0] for prompt in prompts]
    assert tokens_of(llm.generate(ids(*prompts), params)) == tokens_of(cold)


@pytest.mark.parametrize("length", [4, 8, 12, 16])
def test_a_prompt_of_whole_blocks_that_is_cached(make_llm, tiny, length):
    prompt = list(range(1, length + 1))
    llm = make_llm(enable_prefix_caching=True)
    wanted = [greedy_tokens(tiny.model, prompt, MAX_TOKENS)]
    first, second = (llm.generate(ids(prompt)[0], GREEDY) for _ in range(2))
    assert tokens_of(first) == tokens_of(second) == wanted
    assert first[0].metrics.num_hit_tokens == 0
    assert second[0].metrics.num_hit_tokens == length - 4  # one token at least has to run


def test_a_shared_prefix_with_another_end(make_llm, tiny):
    llm = make_llm(enable_prefix_caching=True)
    prompts = [[*range(1, 11), last, last + 1, 3] for last in (20, 30, 40)]
    for prompt in prompts:
        wanted = greedy_tokens(tiny.model, prompt, MAX_TOKENS)
        output = llm.generate(ids(prompt)[0], GREEDY)[0]
        assert output.outputs[0].token_ids == wanted
    assert output.metrics.num_hit_tokens == 8


def test_generated_tokens_are_found_again(make_llm, tiny):
    """A conversation goes on: the first answer is part of the next prompt."""
    llm = make_llm(enable_prefix_caching=True)
    params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
    first = llm.generate(ids([1, 2, 3])[0], params)[0]
    again = [1, 2, 3, *first.outputs[0].token_ids, 9]
    second = llm.generate(ids(again)[0], GREEDY)[0]
    assert second.metrics.num_hit_tokens == 12  # of 15 tokens: the last one never ran
    assert second.outputs[0].token_ids == greedy_tokens(tiny.model, again, MAX_TOKENS)


def test_no_stale_hit_after_blocks_were_reused(make_llm, prompts, expected):
    """Fill, free, refill with others, ask the first again; in a pool that holds one at a time."""
    llm = make_llm(block_size=4, num_blocks=11, enable_prefix_caching=True)
    for _ in range(2):
        for prompt, tokens in zip(prompts, expected, strict=True):
            assert tokens_of(llm.generate(ids(prompt)[0], GREEDY)) == [tokens]
            llm.pool.check_integrity()


def test_a_hash_that_is_always_the_same(make_llm, prompts, expected):
    """Every prefix collides; only the comparison of tokens is left to tell them apart."""
    llm = make_llm(enable_prefix_caching=True)
    llm.pool._hash = lambda data: b"same"
    for _ in range(2):
        for prompt, tokens in zip(prompts, expected, strict=True):
            assert tokens_of(llm.generate(ids(prompt)[0], GREEDY)) == [tokens]
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == expected


def test_abort_in_mid_prefill_then_the_same_prefix(make_llm, tiny):
    llm = make_llm(enable_prefix_caching=True, max_num_batched_tokens=5)
    prompt = list(range(1, 25))
    (name,) = llm.add_request(ids(prompt)[0], GREEDY)
    assert llm.step() == []  # 5 of 24 tokens
    assert llm.step() == []
    llm.abort(name)
    (event,) = llm.step()
    assert (event.finish_reason, event.token_id) == ("abort", None)
    assert llm.pool.num_used == 0
    output = llm.generate(ids(prompt)[0], GREEDY)[0]
    assert output.metrics.num_hit_tokens == 8
    assert output.outputs[0].token_ids == greedy_tokens(tiny.model, prompt, MAX_TOKENS)


def test_up_to_the_model_length(make_llm, tiny):
    llm = make_llm(max_model_len=20)
    prompt = list(range(1, 17))
    params = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
    (output,) = llm.generate(ids(prompt)[0], params)[0].outputs
    assert output.finish_reason == "length"
    assert len(output.token_ids) == 4
    assert output.token_ids == greedy_tokens(tiny.model, prompt, 4)


def test_the_plain_model_is_as_before(make_llm, tiny):
    tokens = torch.tensor([[1, 2, 3, 4]])
    with torch.inference_mode():
        before = tiny.model(tokens).logits
        make_llm().generate("abc", GREEDY)
        assert torch.equal(tiny.model(tokens).logits, before)


def test_the_plain_model_is_as_before_after_an_error_within(make_llm, tiny, monkeypatch):
    llm = make_llm()
    tokens = torch.tensor([[1, 2, 3, 4]])
    with torch.inference_mode():
        before = tiny.model(tokens).logits
    cache = llm._engine.runner.cache
    monkeypatch.setattr(cache, "write", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        llm.generate("abc", GREEDY)
    with torch.inference_mode():
        assert torch.equal(tiny.model(tokens).logits, before)


def test_two_engines_on_one_model(make_llm, prompts, expected):
    """Their streams alternate step by step."""
    first, second = make_llm(), make_llm(block_size=3)
    pairs = zip(
        first.stream(ids(*prompts), GREEDY), second.stream(ids(*prompts), GREEDY), strict=True
    )
    seen = [(a.token_id, b.token_id) for a, b in pairs]
    assert sorted(a for a, _ in seen) == sorted(token for tokens in expected for token in tokens)
    assert sorted(b for _, b in seen) == sorted(token for tokens in expected for token in tokens)


def test_salts_keep_tenants_apart(make_llm, tiny):
    """The same prompt under the same salt is found again, under another it is not."""
    llm = make_llm(enable_prefix_caching=True)
    prompt = list(range(1, 11))
    wanted = greedy_tokens(tiny.model, prompt, MAX_TOKENS)
    hits = []
    for salt in ({}, {"cache_salt": "x"}, {"cache_salt": "y"}, {"cache_salt": "x"}, {}):
        output = llm.generate({"prompt_token_ids": prompt, **salt}, GREEDY)[0]
        assert output.outputs[0].token_ids == wanted
        hits.append(output.metrics.num_hit_tokens)
    assert hits == [0, 0, 0, 8, 8]
    assert (llm.pool.prefix_cache_queries, llm.pool.prefix_cache_hits) == (50, 16)
    assert llm.pool.hit_rate == 16 / 50


def test_a_waiting_request_is_looked_up_once(make_llm):
    """It tries every step to be admitted; the hit rate counts it when it is."""
    llm = make_llm(enable_prefix_caching=True, num_blocks=5)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    outputs = llm.generate(ids(list(range(1, 11)), list(range(11, 21))), params)
    assert [output.metrics.num_preemptions for output in outputs] == [0, 0]
    assert llm.pool.prefix_cache_queries == 20


def test_a_prompt_may_be_a_dict_of_text(make_llm):
    llm = make_llm()
    plain = llm.generate("abc", GREEDY)[0]
    assert llm.generate({"prompt": "abc", "cache_salt": "x"}, GREEDY)[0].outputs[0].text == (
        plain.outputs[0].text
    )


@pytest.mark.parametrize("salt", ["", None, 3, b"x"])
def test_a_salt_that_is_none_is_refused(make_llm, salt):
    with pytest.raises(TypeError, match="cache_salt must be a string that is not empty"):
        make_llm().generate({"prompt": "abc", "cache_salt": salt}, GREEDY)
