"""How much of a step is not arithmetic.

Twice measured. `shrunk`: a model with the same layers, but so narrow that its arithmetic takes no
time, serves the same requests in the same engine; what is left is Python, and torch's own way to
each operation. That is an upper bound of Python's share. `profile`: where the time of some steps of
the real model goes, by torch's profiler, which itself slows what is not arithmetic.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from llmserve_lab import LLM
from llmserve_lab.models.fused_linear import FusedLinear
from llmserve_lab.models.load import LoadedModel
from llmserve_lab.models.rms_norm import RMSNorm

NARROW = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 1}
NARROW |= {"num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64}
PROFILED_STEPS = 16
MICROSECONDS = 1e6
PRODUCTS, ATTENTION, OTHER = "matrix products", "attention", "other operations"
PRODUCT_NAMES = {"aten::linear", "aten::matmul", "aten::mm", "aten::addmm", "aten::bmm"}


def shrunk(loaded: LoadedModel) -> LoadedModel:
    """A random Llama of the same depth and dtype, 16 wide."""
    import torch
    from transformers import LlamaForCausalLM

    config = copy.deepcopy(loaded.model.config)
    for name, value in NARROW.items():
        setattr(config, name, value)
    with torch.random.fork_rng():
        model = LlamaForCausalLM(config).to(loaded.model.dtype).eval()
    return replace(loaded, model=model)


def narrow_prompts(prompts: Any) -> list[dict[str, Any]]:
    """The same lengths, with ids that the shrunk model knows."""
    return [{"prompt_token_ids": [i % NARROW["vocab_size"] for i in ids]} for ids in prompts]


def profile(llm: LLM, prompts: Any, params: Any) -> dict[str, float]:
    """Shares of the time of some steps with every request running: "matrix products", "attention",
    "other operations" of torch and of our kernels, and "Python", the rest. The engine is left with
    no work. All prompts must fit into the engine at once."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    for prompt, param in zip(prompts, params, strict=True):
        llm.add_request(prompt, param)
    while not all(request.num_output_tokens for request in llm._engine.requests.values()):
        llm.step()
    with _marked(llm), profiler(activities=[ProfilerActivity.CPU]) as found:
        began = time.perf_counter()
        for _ in range(PROFILED_STEPS):
            llm.step()
        seconds = time.perf_counter() - began
    for request_id in list(llm._engine.requests):
        llm.abort(request_id)
    llm.step()
    return _shares(found.events(), seconds)


@contextmanager
def _marked(llm: LLM) -> Iterator[None]:
    """The profiler knows torch's operations; here it is shown ours too."""
    runner: Any = llm._engine.runner
    with (
        patch.object(FusedLinear, "__call__", _mark(FusedLinear.__call__, PRODUCTS)),
        patch.object(RMSNorm, "__call__", _mark(RMSNorm.__call__, OTHER)),
        patch.object(runner, "attention", _mark(runner.attention, ATTENTION)),
    ):
        yield


def _mark(function: Any, name: str) -> Any:
    from torch.profiler import record_function

    def marked(*arguments: Any, **named: Any) -> Any:
        with record_function(name):
            return function(*arguments, **named)

    return marked


def _shares(events: Any, seconds: float) -> dict[str, float]:
    """Of the outermost events, by kind."""
    totals = dict.fromkeys((PRODUCTS, ATTENTION, OTHER), 0.0)
    for event in events:
        if event.cpu_parent is None and (event.name in totals or "::" in event.name):
            totals[_kind(event.name)] += event.cpu_time_total / MICROSECONDS
    shares = {kind: spent / seconds for kind, spent in totals.items()}
    return shares | {"Python": 1 - sum(shares.values())}


def _kind(name: str) -> str:
    if "::" not in name:
        return name
    return PRODUCTS if name in PRODUCT_NAMES else OTHER
