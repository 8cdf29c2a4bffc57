"""What chapter 16 and its exercise measure with: answers of several lengths, cached rows, look-ups,
and a learner's own prefix cache in the engine."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab import LLM, SamplingParams, Scheduler, load
from llmserve_lab.course.block_hash import BlockHash
from llmserve_lab.course.cached_rows import apart, cached_rows
from llmserve_lab.course.checks.ex16_answers import keys, match, publish
from llmserve_lab.course.checks.prefix_table import PrefixTable
from llmserve_lab.course.checks.tokens import Tokens
from llmserve_lab.course.forgetful import ForgetfulScheduler
from llmserve_lab.course.length_sweep import exponent, measure_lengths
from llmserve_lab.course.lookup import digests, look_up
from llmserve_lab.course.own_prefix import Entry, OwnPrefixPool
from llmserve_lab.course.past import with_past
from llmserve_lab.kv_cache import BlockPool
from tests.engine.reference import greedy_tokens, ids, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=6)


@pytest.fixture(scope="module")
def model():
    return load("lab-target", device="cpu", dtype="float32")


class TestLengthSweep:
    @pytest.mark.parametrize("n", [1, 2, 7])
    def test_counts_are_those_of_the_sums(self, tiny, n):
        (kept,) = measure_lengths(tiny, [n], Scheduler)
        (again,) = measure_lengths(tiny, [n], ForgetfulScheduler)
        assert (kept.length, kept.computed, kept.pairs) == (n, n, n * (n + 1) // 2)
        assert again.computed == n * (n + 1) // 2
        assert again.pairs == n * (n + 1) * (n + 2) // 6

    @pytest.mark.parametrize("scheduler", [Scheduler, ForgetfulScheduler])
    def test_operations_are_those_that_the_engine_counts(self, tiny, scheduler):
        (point,) = measure_lengths(tiny, [9], scheduler, token=3)
        llm = LLM(tiny, scheduler=scheduler())
        params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
        llm.generate({"prompt_token_ids": [3]}, params)
        assert point.flops == llm.metrics.flops and point.computed == llm.metrics.computed_tokens
        assert point.linear > 0 < point.attention and point.seconds > 0

    @given(st.floats(0.1, 4), st.floats(0.01, 100))
    def test_a_power_is_found(self, power, factor):
        lengths = [2, 8, 32, 100]
        assert exponent(lengths, [factor * n**power for n in lengths]) == pytest.approx(power)

    @pytest.mark.parametrize(
        ("lengths", "values"), [([8], [1]), ([8, 8], [1, 2]), ([1, 2], [0, 1]), ([], [])]
    )
    def test_too_little_for_a_power_is_refused(self, lengths, values):
        with pytest.raises(ValueError, match="two lengths or more"):
            exponent(lengths, values)

    def test_no_length_is_refused(self, tiny):
        with pytest.raises(ValueError, match="length"):
            measure_lengths(tiny, [4, 0], Scheduler)


class TestCachedRows:
    def test_they_are_what_transformers_keeps(self, model):
        tokens = list(range(100, 137))
        _, past = with_past(model.model, torch.tensor([tokens]))
        rows = cached_rows(model, tokens)
        assert len(rows) == len(past.layers)
        for mine, theirs in zip(rows, past.layers, strict=True):
            assert mine.keys.shape == (37, 2, 64)
            assert torch.allclose(mine.keys, theirs.keys[0].transpose(0, 1), atol=1e-4)
            assert torch.allclose(mine.values, theirs.values[0].transpose(0, 1), atol=1e-4)

    def test_how_far_apart(self):
        one = torch.tensor([3.0, 4.0])
        assert apart(one, one) == 0
        assert apart(one, torch.zeros(2)) == pytest.approx(1)
        assert apart(one, torch.tensor([3.0, 4.5])) == pytest.approx(0.1)

    def test_only_the_newest_are_compared(self, tiny):
        mine, theirs = (cached_rows(tiny, [first, 5, 6, 7])[0] for first in (1, 2))
        assert max(mine.apart(theirs, newest=3)) < 1e-6 < min(mine.apart(theirs, newest=4))


class TestLookup:
    def test_hits_digests_and_salt(self, tiny):
        llm = LLM(tiny, block_size=4, num_blocks=32, enable_prefix_caching=True)
        tokens = list(range(1, 15))
        first = look_up(llm, tokens, label="first")
        again = look_up(llm, tokens)
        other = look_up(llm, [*tokens[:6], 40, *tokens[7:]])
        salted = look_up(llm, tokens, salt="x")
        assert [each.hits for each in (first, again, other, salted)] == [0, 12, 4, 0]
        assert (again.computed, again.num_tokens, first.label) == (2, 14, "first")
        assert first.digests == again.digests == digests(llm.pool, tokens)
        assert len(first.digests) == 3 and len(first.digests[0]) == 4
        same = [a == b for a, b in zip(first.digests, other.digests, strict=True)]
        assert same == [True, False, False]
        assert not set(salted.digests) & set(first.digests)
        assert "12 tokens found" in str(again) and again.ttft > 0

    def test_an_engine_without_a_prefix_cache_finds_nothing(self, tiny):
        llm = LLM(tiny, block_size=4, num_blocks=32)
        assert [look_up(llm, list(range(1, 10))).hits for _ in range(2)] == [0, 0]


class TestBlockHash:
    def test_it_is_the_same_everywhere_and_depends_on_all_it_is_given(self):
        h = BlockHash()
        assert h("", [1, 2]) == h("", (1, 2)) == BlockHash()("", [1, 2])
        keys = {h(before, tokens) for before in ("", "a", 0, 1) for tokens in ([1, 2], [2, 1], [1])}
        assert len(keys) == 12

    def test_few_values_collide(self):
        assert {BlockHash(3)("", [n]) for n in range(50)} == {0, 1, 2}
        assert repr(BlockHash(3)) == "<a hash of 3 values>" and repr(BlockHash()) == "<a hash>"

    @pytest.mark.parametrize("given", [(None, [1]), ("", "12"), ("", ["a"]), ([1], [1])])
    def test_what_is_no_block_is_told(self, given):
        with pytest.raises(TypeError, match=r"h\(before, tokens\) takes"):
            BlockHash()(*given)


PROMPTS = [[*range(1, 13), start, start + 1] for start in (20, 30, 40, 20)]
SALTS = ["", "", "x", ""]


def asked(prompts=PROMPTS, salts=SALTS):
    return [
        {"prompt_token_ids": p} | ({"cache_salt": s} if s else {})
        for p, s in zip(prompts, salts, strict=True)
    ]


def served(make_llm, pool, prompts, params=GREEDY):
    llm = make_llm(num_blocks=None, block_size=16, block_pool=pool)
    outputs = [llm.generate(prompt, params)[0] for prompt in prompts]
    return [output.metrics.num_hit_tokens for output in outputs], tokens_of(outputs)


class TestOwnPrefixPool:
    def test_it_finds_what_the_engines_own_pool_finds(self, make_llm, tiny):
        mine = served(make_llm, OwnPrefixPool(40, 4, match, publish), asked())
        theirs = served(make_llm, BlockPool(40, 4, enable_prefix_caching=True), asked())
        assert mine == theirs
        assert mine[0] == [0, 12, 0, 12]
        assert mine[1] == [greedy_tokens(tiny.model, prompt, 6) for prompt in PROMPTS]

    @given(st.data())
    @settings(max_examples=12)
    def test_on_a_small_pool_with_a_poor_hash_no_answer_changes(self, tiny, data):
        texts = st.lists(st.integers(1, 2), min_size=1, max_size=12)
        prompts = data.draw(st.lists(texts, min_size=1, max_size=4))
        salts = data.draw(st.lists(st.sampled_from(SALTS), min_size=6, max_size=6))
        h = BlockHash(data.draw(st.sampled_from([1, 2, 2**64])))
        pool = OwnPrefixPool(10, 2, match, publish, h=h)
        llm = LLM(tiny, block_pool=pool)
        outputs = llm.generate(asked(prompts, salts[: len(prompts)]), GREEDY)
        outputs += llm.generate(asked(prompts, salts[: len(prompts)]), GREEDY)
        pool.check_integrity()
        assert len({entry.block for entry in pool.table.values()}) == len(pool.table)
        assert tokens_of(outputs) == 2 * [greedy_tokens(tiny.model, p, 6) for p in prompts]

    def test_an_entry_that_stays_behind_gives_a_wrong_answer(self, make_llm, tiny):
        answers = {}
        for forget in (True, False):
            pool = OwnPrefixPool(6, 4, match, publish, forget=forget)
            prompts = ids(PROMPTS[0], list(range(40, 61)), PROMPTS[0])  # the second fills it
            hits, tokens = served(
                make_llm, pool, prompts, SamplingParams(temperature=0, max_tokens=3)
            )
            answers[forget] = tokens[2] == tokens[0]
            assert (hits[2] > 0) == (not forget)
        assert answers == {True: True, False: False}

    @pytest.mark.parametrize(
        ("found", "message"),
        [
            (None, "return a list of block numbers from 0 to 39"),
            ([40], "return a list of block numbers"),
            ([True], "return a list of block numbers"),
            ([0, 1, 2, 3], "found 4 blocks for 14 tokens: leave at least one token"),
        ],
    )
    def test_a_match_that_is_none_is_named(self, tiny, found, message):
        llm = LLM(tiny, block_pool=OwnPrefixPool(40, 4, lambda *_: found, publish))
        with pytest.raises(ValueError, match=message):
            llm.generate(asked()[0], GREEDY)

    @pytest.mark.parametrize("table", [None, [], {1: (0, "", (1, 2))}])
    def test_a_table_that_is_none_is_named(self, tiny, table):
        llm = LLM(tiny, block_pool=OwnPrefixPool(40, 4, match, lambda *_: table))
        with pytest.raises(TypeError, match="return a dict of key to Entry"):
            llm.generate(asked()[0], GREEDY)


class TestReferences:
    @given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 5))
    def test_keys_grow_with_the_text_and_never_change(self, tokens, size):
        h = BlockHash()
        whole = keys(tokens, size, "", h)
        assert len(whole) == len(tokens) // size
        for end in range(len(tokens)):
            assert keys(tokens[:end], size, "", h) == whole[: end // size]
        assert not set(whole) & set(keys(tokens, size, "x", h))

    @given(st.lists(st.integers(0, 1), max_size=12), st.lists(st.integers(0, 1), max_size=12))
    def test_a_match_is_what_both_texts_begin_with(self, known, wanted):
        size, table = 2, {}
        for end in range(size, len(known) + 1, size):
            table = publish(table, end // size, known[:end], size, "", BlockHash())
        alike = 0
        while alike < min(len(known), len(wanted)) and known[alike] == wanted[alike]:
            alike += 1
        most = min(alike, max(0, len(wanted) - 1)) // size
        assert match(wanted, size, "", table, BlockHash()) == list(range(1, most + 1))


@pytest.mark.parametrize(
    ("got", "fault"),
    [
        ({1: Entry(0, "", (5,))}, None),
        ({}, "expected the keys [1], got []"),
        ({1: Entry(2, "", (5,))}, "under key 1 expected Entry(block=0"),
        ({1: (0, "", (5,))}, "expected an Entry(block, salt, tokens), got the tuple"),
        ({1: Entry(0, "", [5])}, "expected a tuple of token ids, got the list [5]"),
        ({1: Entry(0.0, "", (5,))}, "expected a block number and a salt"),
        ({"1": Entry(0, "", (5,))}, "expected a dict with keys of h"),
        (None, "is there a return?"),
    ],
)
def test_tables_are_compared_type_first(got, fault):
    told = PrefixTable().compare({1: Entry(0, "", (5,))}, got)
    assert told is None if fault is None else fault in told


def test_a_list_of_ints_says_what_it_lacks():
    assert Tokens("blocks").compare([1, 2], [1]) == "expected 2 blocks, got 1"
