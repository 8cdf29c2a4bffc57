"""Penalties, bias and allowed tokens: against a slow reference, transformers, and preemption."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab import SamplingParams
from llmserve_lab.engine.logit_edits import LogitEdits
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampler import Sampler
from tests.engine.reference import ids, tokens_of

VOCABULARY = 9
END = 0


def reference(logits, request):
    """One row, one token at a time, in the order that the module states."""
    params, early = request.params, request.num_output_tokens < request.params.min_tokens
    prompt, output = set(request.prompt_token_ids), Counter(request.output_token_ids)
    row = []
    for token, logit in enumerate(logits):
        if params.allowed_token_ids is not None and token not in params.allowed_token_ids:
            logit = -math.inf
        if early and token in {END, *params.stop_token_ids}:
            logit = -math.inf
        logit += (params.logit_bias or {}).get(token, 0)
        if token in prompt or token in output:
            up = logit <= 0
            logit = logit * params.repetition_penalty if up else logit / params.repetition_penalty
        logit -= params.frequency_penalty * output[token]
        logit -= params.presence_penalty * (token in output)
        row.append(logit)
    return row


tokens = st.integers(0, VOCABULARY - 1)
params = st.builds(
    SamplingParams,
    max_tokens=st.just(30),
    min_tokens=st.sampled_from([0, 0, 4]),
    stop_token_ids=st.lists(st.integers(0, 2), max_size=2),
    repetition_penalty=st.sampled_from([1.0, 1.0, 0.5, 1.5]),
    frequency_penalty=st.sampled_from([0.0, 0.0, -2.0, 0.25]),
    presence_penalty=st.sampled_from([0.0, 0.0, -1.0, 2.0]),
    logit_bias=st.none()
    | st.dictionaries(tokens, st.sampled_from([-100.0, -1.5, 2.0]), max_size=3),
    allowed_token_ids=st.none() | st.lists(st.integers(3, 8), min_size=1, max_size=6),
)
prompts = st.lists(tokens, min_size=1, max_size=5)
batches = st.lists(st.tuples(params, prompts), min_size=1, max_size=5)


@settings(max_examples=150)
@given(batches, st.lists(st.lists(tokens, min_size=5, max_size=5), max_size=6), st.data())
def test_every_edit_against_the_reference_while_tokens_come(batch, steps, data):
    """In each step any part of the batch is there, in any order, as under preemption."""
    requests = [Request(f"{i}", prompt, p) for i, (p, prompt) in enumerate(batch)]
    edits = LogitEdits(frozenset([END]))
    for step in steps:
        chosen = data.draw(st.permutations(requests))[: data.draw(st.integers(1, len(requests)))]
        logits = torch.randn(len(chosen), VOCABULARY)
        before = logits.clone()
        edited = edits.apply(logits, chosen)
        wanted = [reference(row, r) for row, r in zip(logits.tolist(), chosen, strict=True)]
        assert torch.allclose(edited, torch.tensor(wanted), atol=1e-5)
        assert torch.equal(logits, before)
        for request, token in zip(chosen, step, strict=False):
            request.token_ids.append(token)
    for request in requests:
        edits.forget(request)
    assert len(edits) == 0


def test_rows_without_an_edit_are_the_models_own():
    plain = [Request(f"{i}", [1], SamplingParams()) for i in range(3)]
    logits = torch.randn(3, VOCABULARY)
    edits = LogitEdits(frozenset([END]))
    assert edits.apply(logits, plain) is logits
    biased = Request("biased", [1], SamplingParams(logit_bias={4: 3.0}))
    edited = edits.apply(logits, [plain[0], biased, plain[1]])
    assert torch.equal(edited[[0, 2]], logits[[0, 2]])
    assert torch.allclose((edited - logits)[1], torch.tensor([0, 0, 0, 0, 3.0, 0, 0, 0, 0]))


def test_counts_follow_tokens_that_are_taken_back():
    """As speculation will do: what was noted of a longer text does not stay."""
    edits = LogitEdits(frozenset())
    request = Request("r", [1], SamplingParams(frequency_penalty=1.0))
    logits = torch.zeros(1, VOCABULARY)
    request.token_ids += [2, 3, 3]
    assert edits.apply(logits, [request])[0].tolist() == [0, 0, -1, -2, 0, 0, 0, 0, 0]
    del request.token_ids[-2:]
    assert edits.apply(logits, [request])[0].tolist() == [0, 0, -1, 0, 0, 0, 0, 0, 0]


def test_a_request_that_reuses_a_row_finds_it_empty():
    edits = LogitEdits(frozenset())
    params = SamplingParams(presence_penalty=1.0, repetition_penalty=2.0)
    first = Request("first", [5], params)
    first.token_ids += [6, 6]
    edits.apply(torch.ones(1, VOCABULARY), [first])
    edits.forget(first)
    second = Request("second", [7], params)
    edited = edits.apply(torch.ones(1, VOCABULARY), [second])
    assert edited[0].tolist() == [1, 1, 1, 1, 1, 1, 1, 0.5, 1]


def test_inference_tensors_are_left_alone():
    with torch.inference_mode():
        logits = torch.randn(2, VOCABULARY)
    every = {"min_tokens": 1, "logit_bias": {1: 1}, "repetition_penalty": 2.0}
    one = Request("a", [1], SamplingParams(**every, allowed_token_ids=[1, 2]))
    before = logits.clone()
    Sampler(frozenset([END])).sample(logits, [one, Request("b", [1], SamplingParams())])
    assert torch.equal(logits, before)


COUNT = 14
PROMPTS = [[5, 9, 2, 7, 9, 9], [1], list(range(20, 40)), [3, 3, 3, 8]]


def generated(tiny, prompt, **options):
    """What transformers' generate adds, with its own logits processors."""
    with torch.inference_mode():
        output = tiny.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=COUNT, do_sample=False, pad_token_id=0, **options,
        )  # fmt: skip
    return tuple(output[0, len(prompt) :].tolist())


ALLOWED = [4, 8, 15, 16, 23, 42]
PAIRS = [
    ({"repetition_penalty": 1.7}, {"repetition_penalty": 1.7}),
    ({"repetition_penalty": 0.8}, {"repetition_penalty": 0.8}),
    ({"logit_bias": {7: 4.0, 8: -100, 30: 2}},
     {"sequence_bias": [[[7], 4.0], [[8], -100.0], [[30], 2.0]]}),
    ({"allowed_token_ids": ALLOWED}, {"prefix_allowed_tokens_fn": lambda batch, ids: ALLOWED}),
    ({"min_tokens": 9}, {"min_new_tokens": 9}),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda v: next(iter(v)))
def test_greedy_equals_transformers(make_llm, tiny, ours, theirs):
    greedy = SamplingParams(temperature=0, max_tokens=COUNT, **ours)
    wanted = [generated(tiny, prompt, **theirs) for prompt in PROMPTS]
    plain = [generated(tiny, prompt) for prompt in PROMPTS]
    assert wanted != plain or "min_tokens" in ours
    assert tokens_of(make_llm(num_blocks=14).generate(ids(*PROMPTS), greedy)) == wanted


MIXED = [
    SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True, frequency_penalty=1.5),
    SamplingParams(temperature=0, max_tokens=COUNT, ignore_eos=True),
    SamplingParams(seed=4, max_tokens=COUNT, presence_penalty=2.0, ignore_eos=True),
    SamplingParams(seed=5, max_tokens=COUNT, repetition_penalty=1.4, top_p=0.8, min_tokens=5),
]


@pytest.fixture(scope="module")
def cold(tiny):
    """Each request alone, in an engine with plenty of room."""
    from llmserve_lab import LLM

    return [
        tokens_of(LLM(tiny, num_blocks=64).generate(ids(prompt)[0], params))[0]
        for prompt, params in zip(PROMPTS, MIXED, strict=True)
    ]


@pytest.mark.parametrize("num_blocks", [9, 11])
@pytest.mark.parametrize("budget", [3, 64])
def test_penalties_seeds_and_lengths_under_preemption(make_llm, cold, num_blocks, budget):
    """Outputs must not become prompt, nor count twice, nor draw another number."""
    llm = make_llm(num_blocks=num_blocks, max_num_batched_tokens=budget)
    outputs = llm.generate(ids(*PROMPTS), MIXED)
    assert sum(output.metrics.num_preemptions for output in outputs) > 0
    assert tokens_of(outputs) == cold


def test_preempted_every_few_steps(make_llm, cold):
    from llmserve_lab import Scheduler

    class Restless(Scheduler):
        """Sends its first request back to the queue in every third step."""

        steps = 0

        def schedule(self):
            batch = super().schedule()
            self.steps += 1
            if self.steps % 3 == 0 and batch:
                victim = batch.pop(0).request
                self._preempt(victim)
            return batch

    llm = make_llm(scheduler=Restless())
    outputs = llm.generate(ids(*PROMPTS), MIXED)
    assert sum(output.metrics.num_preemptions for output in outputs) > 4
    assert tokens_of(outputs) == cold


def test_a_bias_decides(make_llm):
    params = SamplingParams(temperature=0, max_tokens=5, logit_bias={17: 100}, ignore_eos=True)
    assert tokens_of(make_llm().generate("abc", params)) == [(17,) * 5]


def test_only_allowed_tokens_are_drawn(make_llm):
    params = SamplingParams(
        temperature=50.0, max_tokens=100, allowed_token_ids=ALLOWED, ignore_eos=True
    )
    (tokens,) = tokens_of(make_llm().generate("abc", params))
    assert set(tokens) == set(ALLOWED)
