"""Names and arguments that learners write, and that run on vLLM with the import changed."""

import inspect
import subprocess
import sys

import pytest

import llmserve_lab
from llmserve_lab import LLM, SamplingParams

VLLM_SAMPLING = {
    "n": 1, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 16,
    "min_tokens": 0, "stop": None, "stop_token_ids": None, "ignore_eos": False, "seed": None,
    "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "logit_bias": None, "allowed_token_ids": None, "logprobs": None, "prompt_logprobs": None,
    "echo": False,
}  # fmt: skip
VLLM_ENGINE = {
    "dtype": "auto", "max_model_len": None, "max_num_seqs": 64, "max_num_batched_tokens": 2048,
    "block_size": 16, "enable_prefix_caching": False, "gpu_memory_utilization": 0.9,
    "kv_cache_memory_bytes": None, "kv_cache_dtype": "auto",
}  # fmt: skip
OURS = {
    "num_blocks": None, "scheduler": None, "block_pool": None, "attention": None, "draft": None,
    "num_draft_tokens": None, "trace": False, "device": "auto", "num_threads": None,
}  # fmt: skip


def defaults(function):
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.name != "self"}


def test_every_public_name_is_there():
    for name in llmserve_lab.__all__:
        assert getattr(llmserve_lab, name) is not None
        assert name in dir(llmserve_lab)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = llmserve_lab.Nothing


def test_importing_the_package_loads_no_torch():
    code = "import llmserve_lab, sys; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_settings_can_be_made_without_torch():
    code = "from llmserve_lab import SamplingParams; SamplingParams(seed=1); import sys"
    code += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_sampling_params():
    assert defaults(SamplingParams) == VLLM_SAMPLING


def test_engine_arguments():
    found = defaults(LLM)
    assert found["model"] == "lab-target"
    assert {name: found[name] for name in VLLM_ENGINE} == VLLM_ENGINE
    assert {name: found[name] for name in OURS} == OURS


@pytest.mark.parametrize("name", ["generate", "stream"])
def test_calls(name):
    assert list(defaults(getattr(LLM, name))) == ["prompts", "sampling_params", "priority"]
    assert defaults(getattr(LLM, name))["sampling_params"] is None


def test_ours_beside_them():
    for name in ("stream", "step", "abort", "add_request", "trace", "has_work"):
        assert hasattr(LLM, name)


def test_a_program_for_vllm(make_llm):
    """As in vLLM's quickstart, with names and shapes of the results."""
    llm = make_llm()
    prompts = ["abc", {"prompt_token_ids": [1, 2]}]
    sampling_params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=4, ignore_eos=True)
    outputs = llm.generate(prompts, sampling_params=sampling_params)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert output.prompt == (prompt if isinstance(prompt, str) else None)
        assert output.finished
        assert isinstance(output.request_id, str)
        assert list(output.prompt_token_ids) == ([1, 2, 3] if prompt == "abc" else [1, 2])
        (completion,) = output.outputs
        assert completion.index == 0
        assert len(completion.token_ids) == 4
        assert completion.text == llm.tokenizer.decode(
            completion.token_ids, skip_special_tokens=True
        )
        assert completion.finish_reason == "length"
        assert output.metrics.num_prompt_tokens == len(output.prompt_token_ids)


def test_one_params_per_prompt(make_llm):
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (1, 3)]
    outputs = make_llm().generate(["abc", "xyz"], params)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 3]


def test_without_params_the_defaults_hold(make_llm):
    (output,) = make_llm().generate("abc")
    assert 1 <= len(output.outputs[0].token_ids) <= 16
