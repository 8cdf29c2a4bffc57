"""What chapter 03 and its exercise measure with: real passes, real counts, real steps."""

from __future__ import annotations

import math

import pytest
import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course.checks.tensor import Tensor
from llmserve_lab.course.counted import counted_flops
from llmserve_lab.course.dimensions import PUBLISHED, Dimensions
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.late_arrival import STEPS_SHOWN, arrive_late
from llmserve_lab.course.layer_pass import layer_pass
from llmserve_lab.course.own_attention import use_attention
from llmserve_lab.course.prefill_times import PrefillCurve, fit_curve, prefill_seconds
from llmserve_lab.simulate import ModelSize


@pytest.fixture(scope="module")
def model():
    return load("lab-target", device="cpu", dtype="float32")


class TestLayerPass:
    def test_the_layer_gives_again_what_it_gave(self, model):
        seen = layer_pass(model, [1, 2, 3], layer=5)
        with torch.inference_mode():
            again, _ = seen.attention(
                seen.hidden[None], position_embeddings=(seen.cos[None], seen.sin[None]),
                attention_mask=None,
            )  # fmt: skip
        assert torch.allclose(again[0], seen.output, atol=1e-6)

    def test_rotation_is_that_of_transformers(self, model):
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        seen = layer_pass(model, [5, 6, 7, 8], layer=0)
        q, k = torch.randn(1, 4, 4, 64), torch.randn(1, 2, 4, 64)
        theirs = apply_rotary_pos_emb(q, k, seen.cos[None], seen.sin[None])
        assert torch.equal(seen.rotated(q[0]), theirs[0][0])
        assert torch.equal(seen.rotated(k[0]), theirs[1][0])

    def test_no_hook_stays(self, model):
        layer_pass(model, [1], layer=1)
        assert not model.model.model.layers[1].self_attn._forward_hooks

    def test_bad_input_is_refused(self, model):
        with pytest.raises(ValueError, match="layer"):
            layer_pass(model, [1], layer=6)
        with pytest.raises(ValueError, match="at least one token"):
            layer_pass(model, [], layer=0)


class TestCountedFlops:
    def test_they_are_those_of_the_dimensions(self, model):
        sizes = Dimensions.of("lab", model.model)
        output_layer = 2 * sizes.hidden * sizes.vocabulary
        for n in (1, 7, 40):
            assert counted_flops(model, n) == {
                "linear": 2 * n * sizes.layer_weights + output_layer,
                "attention": 4 * n * n * sizes.hidden * sizes.num_layers,
            }

    def test_the_model_is_as_before(self, model):
        before = model.model.config._attn_implementation
        counted_flops(model, 2)
        assert model.model.config._attn_implementation == before


class TestDimensions:
    def test_they_give_every_parameter(self, model):
        assert Dimensions.of("lab", model.model).parameters == model.num_parameters
        known = ModelSize.llama2_7b(), ModelSize.llama3_8b(), ModelSize.llama3_70b()
        assert [d.parameters for d in PUBLISHED] == [size.parameters for size in known]


class TestPrefillTimes:
    def test_the_shortest_of_several_passes_counts(self, model):
        times = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0, 30.0, 35.0])  # two lengths, two rounds
        assert prefill_seconds(model, [1, 2], 2, lambda: next(times)) == {1: 2.0, 2: 1.0}

    def test_a_curve_is_found_again(self):
        curve = fit_curve({n: 0.01 + 2e-4 * n + 1e-7 * n * n for n in (10, 100, 1000, 3000)})
        assert curve.fixed == pytest.approx(0.01) and curve.linear == pytest.approx(2e-4)
        assert curve.crossover == pytest.approx(2000)
        assert curve.seconds(500) == pytest.approx(0.01 + 0.1 + 0.025)

    def test_no_part_is_negative(self):
        curve = fit_curve({1: 1.0, 2: 1.5, 4: 2.0, 8: 2.2})  # bends the other way
        assert min(curve.fixed, curve.linear, curve.quadratic) >= 0

    def test_without_a_bend_there_is_no_crossover(self):
        assert PrefillCurve(0.0, 1.0, 0.0).crossover == math.inf

    def test_two_lengths_are_too_few(self):
        with pytest.raises(ValueError, match="three lengths"):
            fit_curve({1: 1.0, 2: 2.0})


@pytest.fixture(scope="module")
def prompts(model):
    return held_out_prompts(model.tokenizer, count=3, num_tokens=20)


class TestArriveLate:
    @pytest.mark.parametrize("budget", [4, 9, 200])
    def test_the_prompt_gets_what_those_who_decode_leave(self, model, prompts, budget):
        run = arrive_late(model, prompts[:2], prompts[2], budget)
        assert run.prefill_steps == math.ceil(20 / (budget - 2))
        assert run.first == STEPS_SHOWN and len(run.steps) == run.last + 1 + STEPS_SHOWN
        assert run.largest_step == min(budget, 22)
        assert all({t.request_id for t in step.sampled} >= {"0", "1"} for step in run.steps)
        assert len(run.tokens[2]) == 1 + STEPS_SHOWN

    def test_the_tokens_are_those_of_a_request_alone(self, model, prompts):
        run = arrive_late(model, prompts[:2], prompts[2], budget=7)
        for prompt, tokens in zip(prompts, run.tokens, strict=True):
            params = SamplingParams(temperature=0.0, max_tokens=len(tokens), ignore_eos=True)
            (alone,) = LLM(model).generate(prompt, params)
            assert tokens == tuple(alone.outputs[0].token_ids)

    def test_a_budget_without_room_is_refused(self, model, prompts):
        with pytest.raises(ValueError, match="leaves no token"):
            arrive_late(model, prompts[:2], prompts[2], budget=2)


class TestOwnAttention:
    def test_each_head_of_each_request_comes_by(self, model):
        calls = []

        def attention(q, k, v):
            calls.append((len(q), len(k)))
            scores = q @ k.T / math.sqrt(q.shape[-1])
            seen = torch.ones_like(scores).tril(len(k) - len(q)).bool()
            return scores.masked_fill(~seen, -math.inf).softmax(-1) @ v

        params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
        prompts = [{"prompt_token_ids": ids} for ids in ([1, 2, 3, 4, 5], [6, 7])]
        llm = LLM(model)
        use_attention(llm, attention)
        mine, theirs = llm.generate(prompts, params), LLM(model).generate(prompts, params)
        assert [o.outputs[0].token_ids for o in mine] == [o.outputs[0].token_ids for o in theirs]
        assert set(calls) == {(5, 5), (2, 2), (1, 6), (1, 3), (1, 7), (1, 4)}

    def test_a_wrong_shape_is_told(self, model):
        llm = LLM(model)
        use_attention(llm, lambda q, k, v: q @ k.T)
        with pytest.raises(ValueError, match=r"shape .*return one row of values"):
            llm.generate("import", SamplingParams(max_tokens=1))


@pytest.mark.parametrize(
    ("got", "fault"),
    [
        (torch.ones(2, 2), None),
        (torch.ones(2, 2) + 1e-7, None),
        (torch.tensor([[1.0, 1.0], [1.0, 2.0]]), "expected 1 at [1, 1], got 2"),
        (torch.full((2, 2), math.nan), "got nan"),
        (torch.ones(2), "expected float32 of shape (2, 2), got float32 of shape (2,)"),
        (torch.ones(2, 2).double(), "got float64"),
        (torch.ones(2, 2).numpy(), "expected a tensor of shape (2, 2), got ndarray of shape"),
        (None, "is there a return?"),
    ],
)
def test_tensors_are_compared_kind_first(got, fault):
    told = Tensor().compare(torch.ones(2, 2), got)
    assert told is None if fault is None else fault in told
