"""Proposers of one's own: right, wrong, silent, too eager, and out of the vocabulary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmserve_lab import PromptLookup, ProposerError, SamplingParams
from tests.engine.reference import ids, tokens_of
from tests.speculative.conftest import Script

PROMPTS = [[1, 2, 3, 4], [7, 8, 9], [30]]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
TEXT = st.lists(st.integers(0, 2), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def texts(tiny):
    return [[*p, *greedy_tokens_past_the_end(tiny, p)] for p in PROMPTS]


def greedy_tokens_past_the_end(tiny, prompt):
    import torch

    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(GREEDY.max_tokens):
            tokens.append(int(tiny.model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def oracle(texts, wrong=False):
    def guess(tokens, most):
        (text,) = [t for t in texts if t[: len(tokens)] == list(tokens)]
        found = text[len(tokens) : len(tokens) + most]
        return [(token + 1) % 64 for token in found] if wrong else found

    return Script(guess)


def test_always_right(make_spec, texts):
    llm = make_spec(oracle(texts), num_draft_tokens=4)
    outputs = llm.generate(ids(*PROMPTS), GREEDY)
    assert [list(t) for t in tokens_of(outputs)] == [
        t[len(p) :] for t, p in zip(texts, PROMPTS, strict=True)
    ]
    assert llm.metrics.acceptance_rate == 1
    assert llm.metrics.steps == 3  # of 5, 5 and 2 tokens: a prompt's own step is guessed on too


def test_always_wrong(make_spec, texts):
    llm = make_spec(oracle(texts, wrong=True), num_draft_tokens=4)
    outputs = llm.generate(ids(*PROMPTS), GREEDY)
    assert [list(t) for t in tokens_of(outputs)] == [
        t[len(p) :] for t, p in zip(texts, PROMPTS, strict=True)
    ]
    assert llm.metrics.accepted_tokens == 0
    assert llm.metrics.steps == 12
    assert llm.metrics.mean_accepted_length == 1


def test_it_is_asked_with_the_whole_text_and_for_no_more_than_can_come(make_spec, texts):
    proposer = oracle(texts)
    make_spec(proposer, num_draft_tokens=4).generate(ids(PROMPTS[0]), GREEDY)
    for tokens, most in proposer.asked:
        assert list(tokens) == texts[0][: len(tokens)]
        assert 1 <= most <= min(4, len(PROMPTS[0]) + GREEDY.max_tokens - len(tokens) - 1)


@pytest.mark.parametrize("nothing", [[], (), iter([])])
def test_nothing_to_propose(make_spec, make_llm, nothing):
    llm = make_spec(Script(lambda tokens, most: nothing), trace=True)
    assert tokens_of(llm.generate(ids(*PROMPTS), GREEDY)) == tokens_of(
        make_llm().generate(ids(*PROMPTS), GREEDY)
    )
    assert llm.metrics.proposed_tokens == llm.metrics.drafted_sequences == 0
    assert llm.metrics.acceptance_rate == llm.metrics.mean_accepted_length == 0
    assert all(step.drafts == () for step in llm.trace)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda most: [1] * (most + 1), "5 tokens were proposed; .* at most 4"),
        (lambda most: [1, 64], "64 was proposed; a token id is a whole number from 0 to 63"),
        (lambda most: [-1], "-1 was proposed"),
        (lambda most: [True], "True was proposed"),
        (lambda most: [1.0], "1.0 was proposed"),
        (lambda most: [None], "None was proposed"),
        (lambda most: ["a"], "'a' was proposed"),
        (lambda most: "abc", "must return a list of token ids, not 'abc'"),
        (lambda most: None, "must return a list of token ids, not None"),
        (lambda most: 3, "must return a list of token ids, not 3"),
    ],
)
def test_a_broken_rule_is_named_and_the_engine_goes_on(make_spec, texts, answer, words):
    right = oracle(texts)
    broken = [False, True, False, False]

    def guess(tokens, most):
        return answer(most) if broken and broken.pop() else right.guess(tokens, most)

    llm = make_spec(Script(guess), num_draft_tokens=4)
    with pytest.raises(ProposerError, match=f"^Request '[01]': .*{words}"):
        llm.generate(ids(*PROMPTS[:2]), GREEDY)
    assert not llm.has_work
    assert llm.pool.num_used == 0
    (output,) = llm.generate(ids(PROMPTS[0]), GREEDY)
    assert list(output.outputs[0].token_ids) == texts[0][4:]


def test_others_go_on_after_a_broken_rule(make_spec, texts):
    """Nothing of the failed step was computed: it runs again."""
    right = oracle(texts)
    answers = [None, None, [99]]
    llm = make_spec(Script(lambda t, n: (answers and answers.pop()) or right.guess(t, n)))
    (name,) = llm.add_request(ids(PROMPTS[1])[0], GREEDY)
    with pytest.raises(ProposerError, match="'0': 99"):
        llm.step()
    llm.pool.check_integrity()
    events = []
    while llm.has_work:
        events += llm.step()
    assert [event.token_id for event in events] == texts[1][3:]
    assert {event.request_id for event in events} == {name}


def test_an_error_of_its_own_comes_through(make_spec, texts):
    def fail(tokens, most):
        raise ZeroDivisionError("mine")

    llm = make_spec(Script(fail))
    with pytest.raises(ZeroDivisionError, match="mine"):
        llm.generate(ids(PROMPTS[0]), GREEDY)
    assert llm.pool.num_used == 0


def naive(tokens, most, longest, shortest):
    for size in range(longest, shortest - 1, -1):
        for start in range(len(tokens) - size - 1, -1, -1):
            if 0 < size < len(tokens) and tokens[start : start + size] == tokens[-size:]:
                return tokens[start + size : start + size + most]
    return []


@given(TEXT, st.integers(1, 6), st.integers(1, 4), st.integers(0, 3))
def test_lookup_against_a_slow_one(tokens, most, shortest, more):
    found = PromptLookup(shortest + more, shortest).propose(tokens, most)
    assert found == naive(tokens, most, shortest + more, shortest)


def test_lookup_finds_whole_tokens_only():
    """256 is two bytes of which one looks like 1."""
    assert PromptLookup(1, 1).propose([256, 5, 2**32, 1], 3) == []
    assert PromptLookup(2, 1).propose([1, 256, 7, 1, 256], 9) == [7, 1, 256]


@pytest.mark.parametrize("sizes", [(0, 0), (2, 3), (1.5, 1), (3, 0)])
def test_lookup_settings(sizes):
    with pytest.raises((ValueError, TypeError), match=r"^(longest|shortest) must be"):
        PromptLookup(*sizes)
