"""What makes no sense is refused by name in one sentence, before anything is queued."""

import math

import numpy
import pytest
import torch

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.models.load import LoadedModel
from tests.conftest import tiny_llama
from tests.engine.reference import ids

BAD_PARAMS = [
    ("n", [0, -1, 1.0, True, "2", None, math.nan]),
    ("temperature", [-0.1, math.nan, math.inf, -math.inf, True, "1", None, [1.0]]),
    ("top_p", [0, 0.0, -0.1, 1.01, math.nan, math.inf, True, "1", None]),
    ("top_k", [-2, 1.5, True, "1", None, math.nan]),
    ("min_p", [-0.1, 1.1, math.nan, True, "0", None]),
    ("max_tokens", [0, -1, 1.5, True, "16", None, math.nan]),
    ("min_tokens", [-1, 0.5, True, "1", None]),
    ("stop", ["", [""], ["a", ""], [1], 5, ["a", None], b"a", {"a": 1}]),
    ("stop_token_ids", [[-1], [1.0], [True], ["a"], "7", 5, [None], {1: 2}]),
    ("ignore_eos", ["no", 1, None]),
    ("seed", [-1, 1.5, True, "1", 2**63, math.nan]),
]


def assert_one_sentence(error, *words):
    message = str(error.value)
    assert message
    assert "\n" not in message
    assert len(message) < 250
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD_PARAMS for value in values]
)
def test_sampling_params(name, value):
    with pytest.raises((ValueError, TypeError)) as error:
        SamplingParams(**{name: value})
    assert_one_sentence(error, name)


def test_min_tokens_above_max_tokens():
    with pytest.raises(ValueError, match=r"min_tokens \(5\) is above max_tokens \(4\)"):
        SamplingParams(min_tokens=5, max_tokens=4)


def test_numbers_of_numpy_are_numbers():
    params = SamplingParams(
        temperature=numpy.float32(0.5),
        max_tokens=numpy.int64(3),
        top_k=numpy.int32(2),
        stop_token_ids=[numpy.int64(4)],
    )
    assert params.stop_token_ids == (4,)


BAD_PROMPTS = [
    ("", ValueError, "empty"),
    ({"prompt_token_ids": []}, ValueError, "empty"),
    ({"prompt_token_ids": None}, ValueError, "empty"),
    ({"prompt_token_ids": [1] * 128}, ValueError, "128 tokens; at most 127 fit"),
    ("a" * 200, ValueError, "200 tokens; at most 127 fit"),
    ({"prompt_token_ids": [-1]}, ValueError, "at least 0, not -1"),
    ({"prompt_token_ids": [1, 64]}, ValueError, "at most 63, not 64"),
    ({"prompt_token_ids": [True]}, TypeError, "True"),
    ({"prompt_token_ids": [1.0]}, TypeError, "1.0"),
    ({"prompt_token_ids": ["a"]}, TypeError, "'a'"),
    ({"prompt_token_ids": 5}, TypeError, "prompt_token_ids"),
    ({"prompt_token_ids": [[1, 2]]}, TypeError, "[1, 2]"),
    ({"text": "abc"}, TypeError, "prompt_token_ids"),
    (5, TypeError, "int"),
    (None, TypeError, "None"),
    ("\ud800", ValueError, "Unicode"),
]


@pytest.mark.parametrize(("prompt", "kind", "words"), BAD_PROMPTS, ids=lambda v: repr(v)[:30])
def test_prompts(make_llm, prompt, kind, words):
    llm = make_llm()
    for call in (llm.generate, llm.stream):
        with pytest.raises(kind) as error:
            call(["fine", prompt, "fine"])
        assert_one_sentence(error, words)
        assert not llm.has_work
    with pytest.raises(kind) as error:
        llm.add_request(prompt)
    assert_one_sentence(error, words)


@pytest.mark.parametrize("prompts", [5, None, 1.5])
def test_what_is_no_list_of_prompts(make_llm, prompts):
    with pytest.raises(TypeError) as error:
        make_llm().generate(prompts)
    assert_one_sentence(error, "prompts", repr(prompts))


def test_the_longest_prompt_that_fits(make_llm):
    (output,) = make_llm().generate(ids([1] * 127), SamplingParams(ignore_eos=True))
    assert len(output.outputs[0].token_ids) == 1


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ([SamplingParams()], ValueError),
        ([SamplingParams()] * 3, ValueError),
        ([], ValueError),
        ([SamplingParams(), None], TypeError),
        ({"temperature": 0, "top_k": 1}, TypeError),
        (5, TypeError),
    ],
)
def test_params_that_do_not_match(make_llm, params, kind):
    llm = make_llm()
    with pytest.raises(kind) as error:
        llm.generate(["abc", "xyz"], params)
    assert_one_sentence(error, "params" if kind is TypeError else "2 prompts")
    assert not llm.has_work


def test_a_stop_token_outside_the_vocabulary(make_llm):
    with pytest.raises(ValueError, match=r"id of stop_token_ids must be at most 63, not 64"):
        make_llm().generate("abc", SamplingParams(stop_token_ids=[64]))


def test_a_tokenizer_that_is_larger_than_the_model(make_llm, tiny):
    """Its ids would be looked up past the end of the embedding."""
    llm = make_llm(LoadedModel("small", tiny_llama(vocab_size=10), tiny.tokenizer, "a test"))
    with pytest.raises(ValueError, match="at most 9, not 26"):
        llm.generate("z")


def test_an_oversize_request_is_refused_at_once_and_others_finish(make_llm):
    llm = make_llm(num_blocks=5, block_size=4)
    (name,) = llm.add_request("abc", SamplingParams(max_tokens=5, ignore_eos=True))
    with pytest.raises(ValueError, match=r"grow to 21 tokens, 6 blocks of 4; the KV cache has 5"):
        llm.generate(["x", "abc"], SamplingParams(max_tokens=18))
    events = []
    while llm.has_work:
        events += llm.step()
    assert {event.request_id for event in events} == {name}
    assert events[-1].finish_reason == "length"
    (largest,) = llm.generate("ab", SamplingParams(max_tokens=18, ignore_eos=True))
    assert len(largest.outputs[0].token_ids) == 18


BAD_SETTINGS = [
    ("max_model_len", [1, 0, 129, 2.0, "5", True]),
    ("max_num_seqs", [0, -1, 1.5, None, "4", True]),
    ("max_num_batched_tokens", [0, None, 1.5]),
    ("block_size", [0, -4, None, "16", 1.5]),
    ("num_blocks", [0, -1, 1.5, "8"]),
    ("kv_cache_memory_bytes", [0, -1, 10, "1GB", 1.5]),
    ("gpu_memory_utilization", [-0.1, 1.5, math.nan, "90%", None]),
]


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD_SETTINGS for value in values]
)
def test_engine_settings(tiny, name, value):
    with pytest.raises((ValueError, TypeError)) as error:
        LLM(tiny, **{name: value})
    assert_one_sentence(error, name)


def test_an_attention_backend_that_is_none_or_does_not_fit(tiny):
    with pytest.raises(ValueError, match="no attention backend 'eager'") as error:
        LLM(tiny, num_blocks=4, attention_backend="eager")
    assert_one_sentence(error, "reference", "cpu")
    half = LoadedModel("half", tiny_llama().half(), tiny.tokenizer, "a test")
    with pytest.raises(ValueError, match="does not work here") as error:
        LLM(half, num_blocks=4, attention_backend="cpu")
    assert_one_sentence(error, "float32", "float16")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_dtypes_run(make_llm, tiny, dtype):
    """Nothing exact is promised for them: greedy choices may differ by rounding."""
    model = tiny_llama().to(getattr(torch, dtype))
    llm = make_llm(LoadedModel(dtype, model, tiny.tokenizer, "a test"))
    assert {t.dtype for t in llm._engine.runner.cache.keys} == {model.dtype}
    params = SamplingParams(max_tokens=4, min_tokens=2, ignore_eos=True, top_p=0.9, seed=0)
    outputs = llm.generate(["abc", "defghijk"], params)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [4, 4]


def test_a_trace_that_was_not_asked_for(make_llm):
    with pytest.raises(ValueError, match="trace=True"):
        _ = make_llm().trace


def test_the_cache_takes_the_memory_it_is_given(tiny):
    per_block = 2 * 2 * 2 * 8 * 4 * 16  # keys and values, layers, KV heads, dim, bytes, tokens
    llm = LLM(tiny, kv_cache_memory_bytes=10 * per_block + 1)
    assert llm.capacity.num_blocks == 10
    assert llm.capacity.block_bytes == per_block
    assert llm._engine.runner.cache.num_bytes == 11 * per_block  # and the null block


def test_the_cache_is_no_larger_than_all_sequences_could_use(tiny):
    assert LLM(tiny, max_num_seqs=3, block_size=16).capacity.num_blocks == 3 * 8
