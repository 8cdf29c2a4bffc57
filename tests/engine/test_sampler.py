"""Sampling against a slow, straightforward reference, and against the distribution itself."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab import SamplingParams
from llmserve_lab.engine.filters import probabilities
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampler import Sampler
from tests.engine.reference import ids, tokens_of


def request_with(name="r", **options):
    return Request(name, [1], SamplingParams(**options))


def reference_probabilities(logits, temperature, top_k, top_p, min_p):
    """Softmax, then top-k, then top-p on what top-k left, then min-p; in float64, one by one."""
    highest = max(logits)
    weights = [math.exp((value - highest) / temperature) for value in logits]
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    kept = order[: top_k if top_k > 0 else len(order)]
    total, before, chosen = sum(weights[i] for i in kept), 0.0, []
    for i in kept:
        if top_p >= 1 or before < top_p or i == order[0]:
            chosen.append(i)
        before += weights[i] / total
    chosen = [i for i in chosen if weights[i] >= min_p * weights[order[0]]]
    total = sum(weights[i] for i in chosen)
    return [weights[i] / total if i in chosen else 0.0 for i in range(len(logits))]


def near_a_border(logits, temperature, top_k, top_p, min_p):
    """Whether a share is so close to a limit that float32 may round to its other side."""
    highest = max(logits)
    weights = sorted((math.exp((v - highest) / temperature) for v in logits), reverse=True)
    kept = weights[: top_k if top_k > 0 else len(weights)]
    sums = [sum(kept[:i]) / sum(kept) for i in range(1, len(kept) + 1)]
    near_p = any(abs(share - top_p) < 1e-5 for share in sums)
    return near_p or any(abs(weight - min_p) < 1e-5 * max(min_p, 1e-3) for weight in kept)


logit_rows = st.lists(st.integers(-60, 60).map(lambda n: n / 8), min_size=1, max_size=12)
temperatures = st.sampled_from([0.2, 0.7, 1.0, 1.5, 4.0])
shares = st.floats(0.01, 1.0)


@settings(max_examples=300)
@given(logit_rows, temperatures, st.integers(-1, 14), shares, st.one_of(st.just(0.0), shares))
def test_filters_against_the_reference(logits, temperature, top_k, top_p, min_p):
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    weights = probabilities(torch.tensor([logits]), [params])[0]
    assert weights[logits.index(max(logits))] > 0  # the likeliest stays
    if near_a_border(logits, temperature, top_k, top_p, min_p):
        return
    wanted = reference_probabilities(logits, temperature, top_k, top_p, min_p)
    assert torch.allclose(
        (weights / weights.sum()).double(), torch.tensor(wanted).double(), atol=1e-5
    )


@settings(max_examples=100)
@given(
    st.integers(0, 2**31),
    st.sampled_from([1e-6, 0.3, 3.0]),
    st.lists(st.tuples(st.integers(0, 320), shares), min_size=1, max_size=3),
)
def test_large_vocabularies_against_a_sorted_row(seed, spread, settings_per_row):
    """More tokens than are ranked at first, flat and steep, with many equal logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(len(settings_per_row), 300, generator=generator) * spread).round(
        decimals=1
    )
    params = [SamplingParams(top_k=k, top_p=p) for k, p in settings_per_row]
    kept = probabilities(logits, params) > 0
    for row, (top_k, top_p) in enumerate(settings_per_row):
        shares_of_row, order = logits[row].double().softmax(-1).sort(stable=True, descending=True)
        rank = top_k if 0 < top_k < 300 else 300
        total = shares_of_row[:rank].sum()
        before = (shares_of_row.cumsum(0) - shares_of_row) / total
        count = max(1, int((before[:rank] < top_p).sum()) if top_p < 1 else rank)
        found = int(kept[row].sum())
        assert kept[row, order[:found]].all()  # equally likely ones: smaller ids first
        near = (before - top_p).abs() < 1e-5
        assert found == count or near[min(found, count) : max(found, count)].any()


@settings(max_examples=50)
@given(st.lists(st.tuples(temperatures, st.integers(0, 5), shares), min_size=2, max_size=5))
def test_rows_of_a_batch_do_not_mix(settings_per_row):
    logits = torch.randn(len(settings_per_row), 8, generator=torch.Generator().manual_seed(0))
    params = [SamplingParams(temperature=t, top_k=k, top_p=p) for t, k, p in settings_per_row]
    together = probabilities(logits, params)
    for row, one in enumerate(params):
        assert torch.allclose(together[row], probabilities(logits[row : row + 1], [one])[0])


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.2}, {"seed": 7}],
    ids=str,
)
def test_draws_follow_the_distribution(options):
    """Chi-square against the expected counts; 40 is far out for at most 5 degrees of freedom."""
    logits = [2.0, 1.0, 0.5, 0.0, -1.0, -1.5]
    rows, rounds = 1000, 5
    params = SamplingParams(**options)
    wanted = reference_probabilities(
        logits, params.temperature, params.top_k, params.top_p, params.min_p
    )
    sampler, counts = Sampler(frozenset()), [0] * len(logits)
    requests = [request_with(**options) for _ in range(rows)]
    for number, request in enumerate(requests):
        request.token_ids += [0] * number * rounds  # a seed draws anew at each output token
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for _ in range(rounds):
            tokens = sampler.sample(torch.tensor([logits] * rows), requests)
            for request, token in zip(requests, tokens, strict=True):
                counts[token] += 1
                request.token_ids.append(token)
    total = rows * rounds
    pairs = list(zip(counts, wanted, strict=True))
    assert all(count == 0 for count, p in pairs if p == 0)
    square = sum((count - total * p) ** 2 / (total * p) for count, p in pairs if p)
    assert square < 40, counts


def test_greedy_takes_the_likeliest_and_draws_nothing():
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 5.0, 1.0]])
    before = torch.get_rng_state()
    sampler = Sampler(frozenset())
    assert sampler.sample(logits, [request_with(temperature=0)] * 2) == [1, 0]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("temperature", [1e-5, 1e-4])
def test_a_tiny_temperature_is_as_good_as_greedy(temperature):
    logits = torch.tensor([[0.0, 30.0, 29.0]])
    assert Sampler(frozenset()).sample(logits, [request_with(temperature=temperature)]) == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_logits_are_left_as_they_are(dtype):
    """The model's output is an inference tensor: writing to it raises outside inference mode."""
    with torch.inference_mode():
        logits = torch.tensor([[0.0, 3.0, 1.0]], dtype=dtype) * 1
    request = request_with(temperature=0, min_tokens=1)
    assert Sampler(frozenset([1])).sample(logits, [request]) == [2]
    assert logits.tolist() == [[0.0, 3.0, 1.0]]


def test_end_tokens_are_forbidden_only_where_it_is_too_early():
    logits = torch.tensor([[0.0, 3.0, 1.0]] * 2)
    early = request_with("early", temperature=0, min_tokens=1, stop_token_ids=[2])
    late = request_with("late", temperature=0)
    assert Sampler(frozenset([1])).sample(logits, [early, late]) == [0, 1]


SEEDED = SamplingParams(temperature=1.3, seed=11, max_tokens=10, ignore_eos=True)
FREE = SamplingParams(temperature=1.3, max_tokens=10, ignore_eos=True)


@pytest.fixture(scope="module")
def seeded_alone(tiny):
    from llmserve_lab import LLM

    return tokens_of(LLM(tiny, num_blocks=64, block_size=4).generate("abcde", SEEDED))[0]


def test_a_seed_gives_the_same_text_each_time(make_llm, seeded_alone):
    llm = make_llm()
    assert [tokens_of(llm.generate("abcde", SEEDED))[0] for _ in range(2)] == [seeded_alone] * 2
    other = SamplingParams(temperature=1.3, seed=12, max_tokens=10, ignore_eos=True)
    assert tokens_of(llm.generate("abcde", other))[0] != seeded_alone


def test_unseeded_requests_differ(make_llm):
    llm = make_llm()
    assert len({tokens_of(llm.generate("abcde", FREE))[0] for _ in range(3)}) == 3


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_seed_beside_unseeded_neighbours(make_llm, seeded_alone, place):
    prompts, params = ["xy", "z" * 9, "uvw", "q"], [FREE] * 4
    prompts.insert(place, "abcde")
    params.insert(place, SEEDED)
    outputs = make_llm(max_num_batched_tokens=7).generate(prompts, params)
    assert tokens_of(outputs)[place] == seeded_alone


def test_a_seed_under_preemption(make_llm, seeded_alone):
    llm = make_llm(num_blocks=6)
    outputs = llm.generate(["abcde"] * 3, SEEDED)
    assert sum(output.metrics.num_preemptions for output in outputs) > 0
    assert tokens_of(outputs) == [seeded_alone] * 3


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_seeds_at_the_ends_of_their_range(make_llm, seed):
    params = SamplingParams(seed=seed, n=2, max_tokens=3, ignore_eos=True)
    outputs = [make_llm().generate("abc", params)[0].outputs for _ in range(2)]
    assert [o.token_ids for o in outputs[0]] == [o.token_ids for o in outputs[1]]
    assert params.continuation(0).seed == seed
    assert params.continuation(1).seed != seed


def test_the_global_random_state_of_torch_seeds_unseeded_requests(make_llm):
    """So that `torch.manual_seed` at the top of a notebook is enough."""
    texts = []
    for _ in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(5)
            texts.append(tokens_of(make_llm().generate(ids([1, 2, 3])[0], FREE)))
    assert texts[0] == texts[1]
