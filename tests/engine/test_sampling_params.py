"""Settings of edits, logprobs and echo that make no sense are refused by name, in one sentence."""

import math

import numpy
import pytest

from llmserve_lab import SamplingParams
from tests.engine.test_bad_input import assert_one_sentence

BAD = [
    ("repetition_penalty", [0, 0.0, -1, math.nan, math.inf, True, "1", None, [1.0]]),
    ("presence_penalty", [-2.1, 2.1, math.nan, math.inf, True, "0", None]),
    ("frequency_penalty", [-2.1, 2.1, math.nan, -math.inf, True, "0", None]),
    ("logit_bias", [5, "1", [1], [(1, 2.0)], {"1": 2.0}, {1.0: 2}, {True: 1}, {-1: 1}, {None: 1},
                    {1: None}, {1: "2"}, {1: math.nan}, {1: math.inf}, {1: 100.5}, {1: -101},
                    {1: True}]),
    ("allowed_token_ids", [[], (), set(), [-1], [1.0], [True], ["a"], "7", 5, [None], {1: 2}]),
    ("logprobs", [-2, 1.5, True, "1", math.nan, [1]]),
    ("prompt_logprobs", [-2, 1.5, True, "1", math.nan, [1]]),
    ("echo", ["yes", 1, 0, None]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD for value in values]
)
def test_a_field_out_of_range(name, value):
    with pytest.raises((ValueError, TypeError)) as error:
        SamplingParams(**{name: value})
    assert_one_sentence(error, name)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1e-9},
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"logit_bias": {numpy.int64(3): numpy.float32(2)}},
        {"logit_bias": {}},
        {"allowed_token_ids": {1, 2}},
        {"allowed_token_ids": range(3)},
        {"logprobs": 0, "prompt_logprobs": -1},
    ],
    ids=str,
)
def test_the_ends_of_the_ranges(options):
    SamplingParams(**options)


def test_what_is_kept_is_a_copy():
    bias, allowed = {1: 2}, [3]
    params = SamplingParams(logit_bias=bias, allowed_token_ids=allowed)
    bias[1], allowed[0] = 5, 6
    assert params.logit_bias == {1: 2.0}
    assert params.allowed_token_ids == (3,)
    assert isinstance(hash(params), int)
    assert params == SamplingParams(logit_bias={1: 2}, allowed_token_ids=[3])


def test_only_ends_are_allowed_before_an_end_is():
    with pytest.raises(ValueError) as error:
        SamplingParams(min_tokens=1, allowed_token_ids=[4, 5], stop_token_ids=[5, 4, 3])
    assert_one_sentence(error, "min_tokens (1)", "allowed_token_ids")
    SamplingParams(min_tokens=1, allowed_token_ids=[4, 6], stop_token_ids=[5, 4, 3])


def test_the_models_end_is_an_end_too(make_llm):
    llm = make_llm()
    with pytest.raises(ValueError) as error:
        llm.generate(["abc", "x"], SamplingParams(min_tokens=1, allowed_token_ids=[0]))
    assert_one_sentence(error, "min_tokens", "allowed_token_ids")
    assert not llm.has_work
    (output,) = llm.generate("abc", SamplingParams(allowed_token_ids=[0]))
    assert output.outputs[0].token_ids == (0,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"allowed_token_ids": [63, 64]}, ["allowed_token_ids", "at most 63, not 64"]),
        ({"logit_bias": {63: 1, 64: 1}}, ["logit_bias", "at most 63, not 64"]),
        ({"logprobs": 65}, ["logprobs", "at most 64, not 65"]),
        ({"prompt_logprobs": 65}, ["prompt_logprobs", "at most 64, not 65"]),
    ],
    ids=str,
)
def test_what_the_vocabulary_does_not_have(make_llm, options, words):
    llm = make_llm()
    with pytest.raises(ValueError) as error:
        llm.generate(["abc", "x"], [SamplingParams(), SamplingParams(**options)])
    assert_one_sentence(error, *words)
    assert not llm.has_work
