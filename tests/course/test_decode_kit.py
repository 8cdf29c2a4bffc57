"""What chapter 04 and its exercise measure with: uses of the machine, a sampler, graders."""

from __future__ import annotations

import pytest
import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course.checks import ex04
from llmserve_lab.course.checks.table_model import TableModel
from llmserve_lab.course.checks.tokens import Tokens
from llmserve_lab.course.dimensions import Dimensions
from llmserve_lab.course.machine_use import (
    PROMPT_TOKENS,
    Use,
    decode_uses,
    prefill_uses,
    product_uses,
)
from llmserve_lab.course.own_sampler import use_sampler
from llmserve_lab.engine.filters import probabilities


@pytest.fixture(scope="module")
def model():
    return load("lab-target", device="cpu", dtype="float32")


class TestUses:
    def test_products_count_what_they_do(self):
        uses = product_uses(torch.ones(8, 4), (1, 3))
        assert [(use.kind, use.size, use.flops) for use in uses] == [
            ("product", 1, 64), ("product", 3, 192),
        ]  # fmt: skip
        assert [use.num_bytes for use in uses] == [4 * (32 + 12), 4 * (32 + 36)]

    def test_a_prefill_is_one_step_of_its_tokens(self, model):
        short, long = prefill_uses(model, (4, 9))
        sizes = Dimensions.of("lab", model.model)
        pairs = 9 * 10 // 2
        assert (short.kind, short.size, long.size) == ("prefill", 4, 9)
        assert long.flops == 2 * 9 * sizes.layer_weights + 2 * sizes.hidden * (
            sizes.vocabulary + 2 * pairs * sizes.num_layers
        )

    def test_a_batch_uses_each_weight_for_all(self, model):
        one, four = decode_uses(model, (1, 4))
        assert (one.kind, one.size, four.size) == ("decode", 1, 4)
        assert four.flops == 4 * one.flops
        kv = 4 * 2 * 6 * 128
        contexts = [(use.num_bytes - one.num_bytes) / kv for use in (one, four)]
        assert contexts[0] == 0 and contexts[1] % 3 == 0  # three caches more, and no weight
        assert 3 * PROMPT_TOKENS < contexts[1] < 3 * (PROMPT_TOKENS + 12)

    def test_rate_and_intensity(self):
        use = Use("decode", 2, flops=100.0, num_bytes=50.0, seconds=0.5)
        assert (use.intensity, use.rate) == (2.0, 200.0)
        assert "2 requests" in str(use) and "500.0 ms" in str(use)

    @pytest.mark.parametrize("measure", [decode_uses, prefill_uses])
    def test_nothing_is_no_size(self, model, measure):
        with pytest.raises(ValueError, match="0"):
            measure(model, (0,))


class TestOwnSampler:
    PROMPTS = ("def read(self", "import")

    def test_the_engine_asks_for_each_token(self, model):
        params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)
        theirs = LLM(model).generate(list(self.PROMPTS), params)
        shapes = []

        def choose(logits):
            shapes.append((tuple(logits.shape), logits.dtype))
            return int(logits.argmax())

        llm = LLM(model)
        use_sampler(llm, choose)
        mine = llm.generate(list(self.PROMPTS), params)
        assert [o.outputs[0].token_ids for o in mine] == [o.outputs[0].token_ids for o in theirs]
        assert shapes == [((4096,), torch.float32)] * 10

    @pytest.mark.parametrize("token", [None, 4096, -1, 1.0, torch.tensor(1), True])
    def test_what_is_no_token_is_told(self, model, token):
        llm = LLM(model)
        use_sampler(llm, lambda logits: token)
        with pytest.raises(ValueError, match="return a token id, a plain int from 0 to 4095"):
            llm.generate("import", SamplingParams(max_tokens=1))


class TestReferences:
    """The exercise's own answers against the engine's sampler."""

    @pytest.mark.parametrize("settings", [(0.7, 3, 1.0), (1.0, 0, 0.6), (1.5, 4, 0.5)])
    def test_filters_are_those_of_the_engine(self, settings):
        temperature, top_k, top_p = settings
        logits = torch.tensor([0.3, 2.0, -1.0, 1.1, 0.7, -0.2])
        params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
        theirs = probabilities(logits[None].clone(), [params])[0]
        mine = ex04.keep(ex04.probabilities(logits, temperature), top_k, top_p)
        assert torch.allclose(mine, theirs / theirs.sum(), atol=1e-6)

    def test_draws_follow_the_probabilities(self):
        p = torch.tensor([0.5, 0.0, 0.25, 0.25])
        drawn = [ex04.draw(p, (i + 0.5) / 1000) for i in range(1000)]
        assert [drawn.count(token) for token in range(4)] == [500, 0, 250, 250]

    def test_the_table_model_sees_the_whole_text(self):
        model = TableModel(((0.0, 1.0), (1.0, 0.0), (0.0, 2.0)))
        assert model([1]).tolist() == [1.0, 0.0] and model([0, 1]).tolist() == [0.0, 2.0]
        for wrong in ([], torch.tensor([1]), 3):
            with pytest.raises(TypeError, match="every token so far"):
                model(wrong)


@pytest.mark.parametrize(
    ("got", "fault"),
    [
        ([1, 2], None),
        ([1, 3], "expected [1, 2], got [1, 3]"),
        ([1, True], "expected a list of ints"),
        ((1, 2), "got the tuple (1, 2)"),
        (None, "is there a return?"),
    ],
)
def test_token_lists_are_compared_type_first(got, fault):
    told = Tokens().compare([1, 2], got)
    assert told is None if fault is None else fault in told
