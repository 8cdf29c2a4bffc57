"""What is said about the limits follows from what the engine did."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.comparison.workloads import works
from benchmarks.limits import gemm, kv_waste, overhead, prefixes, reading
from benchmarks.limits.study import memory_study, one_thread
from llmserve_lab import SamplingParams


def greedy(tokens):
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)


def prompts(*lengths):
    return [{"prompt_token_ids": [1 + i] * length} for i, length in enumerate(lengths)]


def test_shapes_are_tokens_and_sampled_rows_of_each_step(make_llm):
    llm = make_llm(trace=True, max_num_batched_tokens=8)
    llm.generate(prompts(6, 5), [greedy(3), greedy(2)])
    # 6 + 2 tokens, one prompt done; 1 + 3; 1 + 1
    assert gemm.shapes_of(llm.trace) == Counter({(8, 1): 1, (4, 2): 1, (2, 2): 1})


def counted(seen, name, width):
    def call(inputs):
        assert inputs.shape[1] == width and inputs.dtype == torch.bfloat16
        seen[name, len(inputs)] += 1

    return gemm.Product(call, width)


def test_every_product_runs_at_the_rows_of_the_steps_and_the_faster_way_counts():
    seen = Counter()
    quick = gemm.Way([counted(seen, "a", 3), counted(seen, "b", 5)], [counted(seen, "head", 3)])
    now = iter(range(10**6))

    def slow(inputs):
        next(now), next(now)

    slower = gemm.Way([gemm.Product(slow, 3)], [gemm.Product(slow, 3)])
    shapes = Counter({(8, 1): 1, (4, 0): 5})
    seconds = gemm.seconds_needed([slower, quick], torch.bfloat16, shapes, 2, lambda: next(now))
    assert set(seen) == {("a", 8), ("b", 8), ("a", 4), ("b", 4), ("head", 1)}  # no row, no product
    assert set(seen.values()) == {3}  # two repeats, after one that warms up
    assert seconds == (1 + 5) + 1  # one tick a pass, and each shape as often as there are steps


def test_both_ways_are_all_linear_layers_of_the_model(make_llm):
    llm = make_llm()
    linear = [m for m in llm.model.modules() if isinstance(m, torch.nn.Linear)]
    plain, fused = gemm.ways_of(llm)
    assert [each.call for each in plain.inner + plain.head] == linear
    layers = [layer for each in fused.inner + fused.head for layer in each.call.layers]
    assert layers == linear


def test_the_keys_and_values_of_a_request_are_read_once_in_each_of_its_steps(make_llm):
    llm = make_llm(trace=True, max_num_batched_tokens=4)
    llm.generate(prompts(6), greedy(3))  # 4 tokens of the prompt, all 6, then 7 and 8
    assert reading.tokens_read(llm.trace) == 4 + 6 + 7 + 8
    layers, keys_and_values = llm.model.config.num_hidden_layers, 2
    width = llm.kv_cache.keys[0].shape[-2:].numel()
    per_token = layers * keys_and_values * width * llm.model.dtype.itemsize
    assert reading.bytes_read(llm.model, llm.trace) == 25 * per_token


def test_reading_is_timed_on_this_machine():
    assert reading.bandwidth() > 0


@pytest.mark.parametrize("block_size", [4, 8])
def test_kv_waste_is_counted_from_the_trace(make_llm, block_size):
    llm = make_llm(trace=True, block_size=block_size)
    llm.generate(prompts(5), greedy(2))  # 5 tokens held, then 6
    found = kv_waste.waste_of(llm.trace)
    assert found["block_size"] == block_size
    assert found["tokens_held"] == 5.5
    assert found["measured"] == pytest.approx(1 - 11 / 16)  # 8 slots in both steps
    assert found["least"] == found["measured"]  # no block too many
    empty = (block_size - 1) / 2
    assert found["expected"] == pytest.approx(empty / (5.5 + empty))


@given(st.integers(2, 64), st.integers(1, 500))
def test_the_expected_waste_is_the_mean_over_all_remainders(block_size, blocks):
    """If each number of tokens from a full block on to the next is as likely."""
    lengths = range((blocks - 1) * block_size + 1, blocks * block_size + 1)
    held, used = block_size * blocks * block_size, sum(lengths)
    mean = used / block_size
    assert kv_waste.expected(block_size, mean) == pytest.approx(1 - used / held)


@given(st.integers(2, 64), st.floats(0.001, 0.9))
def test_tokens_for_a_waste_give_that_waste(block_size, waste):
    tokens = kv_waste.tokens_for(waste, block_size)
    assert kv_waste.expected(block_size, tokens) == pytest.approx(waste)


def test_the_shrunk_model_is_as_deep_and_serves_the_same_lengths(tiny, make_llm):
    narrow = overhead.shrunk(tiny)
    assert narrow.model.config.num_hidden_layers == tiny.model.config.num_hidden_layers
    assert narrow.model.dtype == tiny.model.dtype
    assert tiny.model.config.hidden_size == 32  # the real one is as it was
    weights = [sum(p.numel() for p in m.parameters()) for m in (narrow.model, tiny.model)]
    assert weights[0] < weights[1] / 3
    asked = [[4000, 5, 63], [64]]
    made = overhead.narrow_prompts(asked)
    assert made == [{"prompt_token_ids": [32, 5, 63]}, {"prompt_token_ids": [0]}]
    outputs = make_llm(narrow).generate(made, [greedy(3), greedy(2)])
    assert [len(output.outputs[0].token_ids) for output in outputs] == [3, 2]


def test_the_profile_shares_out_all_of_the_time_and_leaves_no_work(make_llm):
    llm = make_llm()
    shares = overhead.profile(llm, prompts(5, 6), [greedy(30), greedy(30)])
    assert set(shares) == {"matrix products", "attention", "other operations", "Python"}
    assert sum(shares.values()) == pytest.approx(1)
    assert all(0 < share < 1 for share in shares.values())
    assert not llm.has_work


def test_a_shared_prefix_is_computed_once(make_llm):
    asked = [{"prompt_token_ids": [7] * 16 + [own] * 3} for own in range(1, 5)]
    found = {}
    for caching in (False, True):
        llm = make_llm(trace=True, enable_prefix_caching=caching, max_num_batched_tokens=19)
        llm.generate(asked, greedy(4))
        found[caching] = prefixes.split(llm.trace)
    assert found[False]["prompt_tokens"] == 4 * 19
    assert found[False]["hit_tokens"] == 0
    assert found[True]["hit_tokens"] == 3 * 16
    assert found[True]["prompt_tokens"] == 4 * 19 - 3 * 16
    assert all(split["decode_seconds"] > 0 for split in found.values())


def test_the_memory_study_holds_the_formula_against_the_engine():
    rows = memory_study(works()["mixed"], {})
    assert [row["block_size"] for row in rows] == [16, 8]
    for row in rows:
        assert row["least"] <= row["measured"]
        assert row["measured"] == pytest.approx(row["expected"], rel=0.1)
    assert rows[0]["measured"] > 1.8 * rows[1]["measured"]


def test_counting_leaves_torch_its_threads(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert asked == [1, 5]
