"""An attention that a learner writes: it serves real requests, and its faults are named."""

import math

import pytest
import torch

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.attention.own import OwnAttention
from llmserve_lab.engine.preemption import SwapToHost
from llmserve_lab.engine.scheduler import Scheduler
from tests.attention.dense import PagedCase
from tests.engine.reference import greedy_tokens, ids, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=10)
PROMPTS = [list(range(start, start + length)) for start, length in ((1, 9), (20, 4), (30, 17))]


def attention(query, key_blocks, value_blocks, block_table, num_tokens, scale):
    """As the course's exercise has it."""
    keys, values = (
        part[block_table].flatten(0, 1)[:num_tokens] for part in (key_blocks, value_blocks)
    )
    group = len(query) // keys.shape[1]
    keys, values = (part.repeat_interleave(group, dim=1) for part in (keys, values))
    scores = torch.einsum("hd,thd->ht", query, keys) * scale
    return torch.einsum("ht,thd->hd", scores.softmax(dim=-1), values)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_batched_tokens": 5},
        {"num_blocks": 10},
        {"num_blocks": 10, "scheduler": lambda: Scheduler(SwapToHost(num_blocks=8))},
        {"enable_prefix_caching": True},
    ],
    ids=["whole prompts", "chunks", "preempted", "swapped", "prefix caching"],
)
def test_it_serves_real_requests(make_llm, tiny, settings):
    settings = {name: v() if name == "scheduler" else v for name, v in settings.items()}
    llm = make_llm(attention=attention, **settings)
    outputs = llm.generate(ids(*PROMPTS), GREEDY)
    assert tokens_of(outputs) == [greedy_tokens(tiny.model, prompt, 10) for prompt in PROMPTS]
    preempted = sum(output.metrics.num_preemptions for output in outputs)
    assert (preempted > 0) == (settings.get("num_blocks") == 10)


def test_continuations_share_their_blocks(make_llm):
    params = SamplingParams(n=3, seed=20, max_tokens=6, ignore_eos=True)
    outputs = make_llm(attention=attention).generate(ids(PROMPTS[0]), params)[0].outputs
    expected = make_llm().generate(ids(PROMPTS[0]), params)[0].outputs
    assert [o.token_ids for o in outputs] == [o.token_ids for o in expected]


def test_it_is_told_what_it_needs_to_know(make_llm, tiny):
    seen = []

    def note(query, key_blocks, value_blocks, block_table, num_tokens, scale):
        seen.append((tuple(query.shape), num_tokens, len(block_table), scale))
        assert key_blocks.shape == value_blocks.shape == (64, 4, 2, 8)
        block_table.append(99)  # a copy: the engine's own stays as it is
        return attention(query, key_blocks, value_blocks, block_table[:-1], num_tokens, scale)

    make_llm(attention=note).generate(ids(PROMPTS[1]), SamplingParams(max_tokens=2))
    layers = tiny.model.config.num_hidden_layers
    places = [1, 2, 3, 4] * layers + [5] * layers
    scale = tiny.model.model.layers[0].self_attn.scaling
    assert seen == [((4, 8), n, 1 if n < 5 and i < 4 * layers else 2, scale)
                    for i, n in enumerate(places)]  # fmt: skip


@pytest.mark.parametrize("heads", [(1, 1), (4, 2), (6, 2)])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_it_equals_dense_attention_on_shuffled_blocks_full_of_nan(heads, block_size):
    case = PagedCase([(5, 1), (0, 7), (13, 3)], heads, 8, block_size, torch.float32)
    kept = [part.clone() for part in case.cache.by_block()]
    own = OwnAttention(attention, case.cache)
    for part, before in zip(case.cache.by_block(), kept, strict=True):
        assert part.isnan().all()
        part.copy_(before)
    torch.testing.assert_close(case.run(own).double(), case.wanted(), atol=1e-5, rtol=1e-5)


FAULTS = {
    "a list": (lambda *given: [0.0], TypeError, r"returned list for token 0 in layer 0"),
    "nothing": (lambda *given: None, TypeError, r"returned NoneType .* tensor of shape \(4, 8\)"),
    "a row": (lambda q, *rest: q[0], ValueError, r"of shape \(8,\) .*: return .* \(4, 8\)"),
    "another dtype": (lambda q, *rest: q.double(), ValueError, r"torch.float64 .*torch.float32"),
    "unwritten slots": (
        lambda q, k, v, table, n, scale: attention(q, k, v, table, n + 1, scale),
        ValueError,
        r"returned NaN for token 8 in layer 0: read only the 9 slots",
    ),
    "a weight of 0": (
        lambda q, k, v, table, n, scale: q * 0 + (0 * v[table].flatten(0, 1)).sum(),
        ValueError,
        r"a weight of 0 does not remove",
    ),
}


@pytest.mark.parametrize(("function", "error", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_and_leaves_nothing_behind(make_llm, function, error, message):
    llm = make_llm(attention=function)
    with pytest.raises(error, match=message):
        llm.generate(ids(PROMPTS[0]), GREEDY)


def test_its_own_error_comes_through(make_llm):
    llm = make_llm(attention=lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        llm.generate(ids(PROMPTS[0]), GREEDY)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"attention": "reference"}, TypeError, "must be a function of .*attention_backend"),
        ({"attention": OwnAttention}, TypeError, "must be a function"),
        ({"attention_backend": "reference"}, ValueError, "exclude each other"),
        ({"cuda_graphs": True}, ValueError, "leave out attention"),
        ({"kv_cache_dtype": "int8"}, ValueError, "quantized KV cache"),
    ],
    ids=["a name", "a class", "two", "graphs", "quantized"],
)
def test_what_does_not_fit_is_refused(tiny, settings, error, message):
    with pytest.raises(error, match=message):
        LLM(tiny, **({"attention": attention, "num_blocks": 8} | settings))


def test_a_model_that_needs_more_is_refused_by_name():
    case = PagedCase([(1, 1)], (1, 1), 8, 4, torch.float32)
    with pytest.raises(ValueError, match="has softcap, window, which attention= is not told of"):
        OwnAttention(attention, case.cache, frozenset({"window", "softcap"}))


def test_bfloat16_is_filled_with_nan_too():
    case = PagedCase([(1, 1)], (1, 1), 8, 4, torch.bfloat16)
    OwnAttention(attention, case.cache)
    assert all(math.isnan(float(part.sum())) for part in case.cache.by_block())
