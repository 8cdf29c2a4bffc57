"""What chapter 07 and its exercise measure with: a forgetful engine, a model's own cache."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from llmserve_lab import LLM, SamplingParams, Scheduler, load
from llmserve_lab.course.counted import counted_flops
from llmserve_lab.course.forgetful import ForgetfulScheduler
from llmserve_lab.course.past import with_past
from llmserve_lab.kv_cache import slots_of

PROMPT = {"prompt_token_ids": list(range(100, 120))}


@pytest.fixture(scope="module")
def model():
    return load("lab-target", device="cpu", dtype="float32")


def served(model, scheduler, prompts=PROMPT):
    llm = LLM(model, scheduler=scheduler)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    return llm.metrics.steps, llm.generate(prompts, params), llm.metrics


class TestForgetfulScheduler:
    def test_it_computes_every_token_in_each_step_and_writes_the_same(self, model):
        _, (kept,), with_cache = served(model, Scheduler())
        _, (again,), without = served(model, ForgetfulScheduler())
        assert again.outputs[0].token_ids == kept.outputs[0].token_ids
        assert with_cache.computed_tokens == 20 + 7
        assert without.computed_tokens == sum(range(20, 28))
        assert with_cache.steps == without.steps == 8

    def test_several_requests_forget_together(self, model):
        others = {"prompt_token_ids": list(range(200, 210))}
        _, outputs, without = served(model, ForgetfulScheduler(), [PROMPT, others])
        _, expected, _ = served(model, Scheduler(), [PROMPT, others])
        assert [o.outputs[0].token_ids for o in outputs] == [
            o.outputs[0].token_ids for o in expected
        ]
        assert without.computed_tokens == sum(range(20, 28)) + sum(range(10, 18))


class TestWithPast:
    def test_token_by_token_equals_all_at_once(self, model):
        ids = torch.tensor([PROMPT["prompt_token_ids"]])
        whole, _ = with_past(model.model, ids)
        past = None
        for place in range(ids.shape[1]):
            logits, past = with_past(model.model, ids[:, place : place + 1], past)
        assert logits.shape == (model.model.config.vocab_size,)
        assert torch.allclose(logits, whole, atol=1e-3)
        assert past.layers[0].keys.shape == (1, 2, 20, 64)

    def test_nothing_is_deprecated_in_it(self, model, recwarn):
        _, past = with_past(model.model, torch.tensor([[1, 2]]))
        with_past(model.model, torch.tensor([[3]]), past)
        assert not [w for w in recwarn if "past_key_values" in str(w.message)]

    def test_the_argument_has_the_name_that_the_model_knows(self):
        class Older:
            def forward(self, ids, past_key_values=None, **options):
                """As transformers before 5.24."""

            def __call__(self, ids, past_key_values=None, **options):
                assert options == {"use_cache": True, "logits_to_keep": 1}
                held = (past_key_values or 0) + ids.shape[1]
                return SimpleNamespace(logits=torch.zeros(1, 1, 7), past_key_values=held)

        logits, past = with_past(Older(), torch.tensor([[1, 2, 3]]))
        assert (logits.shape, past) == ((7,), 3)
        assert with_past(Older(), torch.tensor([[4]]), past)[1] == 4


class TestCountedFlops:
    def test_the_last_of_n_tokens_costs_what_n_tokens_cost_more(self, model):
        config = model.model.config
        last, whole, before = (
            counted_flops(model, 1, 31), counted_flops(model, 32), counted_flops(model, 31),
        )  # fmt: skip
        output_layer = 2 * config.hidden_size * config.vocab_size
        assert last["linear"] == whole["linear"] - before["linear"] + output_layer
        assert last["attention"] * 32 == whole["attention"]

    def test_attention_follows_the_cached_length_and_weights_do_not(self, model):
        short, long = counted_flops(model, 1, 15), counted_flops(model, 1, 63)
        assert long["attention"] == 4 * short["attention"]
        assert long["linear"] == short["linear"]

    def test_a_negative_length_is_refused(self, model):
        with pytest.raises(ValueError, match="num_cached"):
            counted_flops(model, 1, -1)


@pytest.mark.parametrize("block_size", [4, 16])
def test_the_engine_holds_the_keys_and_values_of_transformers(model, block_size):
    llm = LLM(model, block_size=block_size, num_blocks=64, trace=True)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    others = [{"prompt_token_ids": list(range(first, first + 20))} for first in (300, 600)]
    for prompt in (PROMPT, *others):
        llm.add_request(prompt, params)
    for _ in range(12):
        llm.step()
    view = llm.trace[-1].running[0]
    written = [s.token_id for step in llm.trace for s in step.sampled if s.request_id == "0"]
    ids = (PROMPT["prompt_token_ids"] + written)[: view.num_computed_tokens]
    _, past = with_past(model.model, torch.tensor([ids]))
    slots = torch.tensor(slots_of(list(view.block_table), 0, len(ids), block_size))
    for index, layer in enumerate(past.layers):
        keys, values = llm.kv_cache.read(index, slots)
        assert torch.allclose(keys, layer.keys[0].transpose(0, 1), atol=1e-4)
        assert torch.allclose(values, layer.values[0].transpose(0, 1), atol=1e-4)
