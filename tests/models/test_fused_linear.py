"""Fused projections: the model keeps its parameters, its names and its memory."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmserve_lab import SamplingParams
from llmserve_lab.models import packed_weight
from llmserve_lab.models.fused_linear import FusedLinear
from llmserve_lab.models.packed_weight import multiplies_bf16
from tests.engine.reference import ids
from tests.models.engines import engine, forward_of, logits_of, prompts_of, through_transformers
from tests.models.families import KNOWN, copied, tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=12)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_model_is_as_it_was(name, dtype, tmp_path):
    model, tokens = tiny_model(name, dtype), torch.tensor([[1, 2, 3, 4]])
    parameters = dict(model.named_parameters())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.inference_mode():
        wanted = copied(model)(tokens).logits
    engine(model).generate("abc", GREEDY)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert all(after[key].is_contiguous() for key in before)
    assert all(found is parameters[key] for key, found in model.named_parameters())
    assert all(p.requires_grad for p in parameters.values())
    tied = model.config.tie_word_embeddings
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    with torch.inference_mode():
        assert torch.equal(model(tokens).logits, wanted)
        assert torch.equal(copied(model)(tokens).logits, wanted)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    assert all(torch.equal(value, before[key]) for key, value in again.state_dict().items())


def memory_of(model):
    storages = [parameter.untyped_storage() for parameter in model.parameters()]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def test_no_weight_is_held_twice():
    model = tiny_model("llama_biased")
    before, exact = memory_of(model), sum(p.nbytes for p in model.parameters())
    assert before == exact
    decoder = forward_of(engine(model)).decoder()
    assert memory_of(model) == exact
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    for layer in decoder.layers:
        for fused in (layer.qkv, layer.output, layer.gate_up, layer.down):
            assert fused.weight.untyped_storage().data_ptr() in own
            assert fused.bias.untyped_storage().data_ptr() in own


def test_training_goes_on_with_the_same_weights():
    """Gradients reach each parameter, and what the optimizer changes, the engine computes with."""
    model, prompts = tiny_model("llama"), prompts_of(5, 9)
    llm = engine(model)
    llm.generate(ids(*prompts), GREEDY)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())
    decoder = forward_of(llm).decoder()
    optimizer.step()
    assert forward_of(llm).decoder() is decoder
    wanted = logits_of(through_transformers(copied(model)), prompts)
    torch.testing.assert_close(logits_of(llm, prompts), wanted, atol=2e-4, rtol=1e-4)


def test_two_engines_share_the_fused_weights():
    model = tiny_model("qwen2")
    first, second = engine(model), engine(model)
    decoders = [forward_of(llm).decoder() for llm in (first, second)]
    weights = [decoder.layers[0].qkv.weight.data_ptr() for decoder in decoders]
    assert weights[0] == weights[1]
    assert memory_of(model) == sum(p.nbytes for p in model.parameters())
    first.generate("abc", GREEDY), second.generate("abc", GREEDY)
    assert [forward_of(llm).decoder() for llm in (first, second)] == decoders


def test_made_within_inference_mode():
    """The weights stay ordinary tensors, which training may go on with."""
    model = tiny_model("llama")
    with torch.inference_mode():
        engine(model).generate("abc", GREEDY)
    assert not any(p.is_inference() for p in model.parameters())
    model(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()


@pytest.mark.skipif(not multiplies_bf16(), reason="this processor has no bf16 products")
class TestPacked:
    """The second copy that bf16 products read: same numbers, and never an old one."""

    def fused(self, bias=True, count=2):
        layers = [torch.nn.Linear(24, 8 * (1 + i), bias).bfloat16() for i in range(count)]
        return layers, FusedLinear(layers)

    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("rows", [0, 1, 3, 40])
    def test_it_computes_what_the_layers_compute(self, rows, bias):
        layers, fused = self.fused(bias)
        assert fused.packed is not None and fused.packed.holds()
        inputs = torch.randn(rows, 24, dtype=torch.bfloat16)
        wanted = torch.cat([layer(inputs) for layer in layers], -1)
        torch.testing.assert_close(fused(inputs), wanted, atol=2e-2, rtol=2e-2)

    def test_rows_that_lie_apart_are_read_too(self):
        layers, fused = self.fused(count=1)
        inputs = torch.randn(5, 48, dtype=torch.bfloat16)[:, ::2]
        torch.testing.assert_close(fused(inputs), layers[0](inputs), atol=2e-2, rtol=2e-2)

    @pytest.mark.parametrize("changed", [0, 1])
    def test_a_changed_weight_is_computed_with(self, changed):
        layers, fused = self.fused()
        with torch.no_grad():
            layers[changed].weight.mul_(2)
        assert not fused.packed.holds()
        inputs = torch.randn(3, 24, dtype=torch.bfloat16)
        wanted = torch.cat([layer(inputs) for layer in layers], -1)
        torch.testing.assert_close(fused(inputs), wanted, atol=4e-2, rtol=2e-2)

    def test_other_dtypes_are_not_packed(self):
        assert FusedLinear([torch.nn.Linear(8, 8)]).packed is None

    def test_a_copy_that_would_fill_the_memory_is_not_made(self, monkeypatch):
        monkeypatch.setattr(packed_weight, "memory", lambda: (10**9, 2000))
        assert self.fused(count=1)[1].packed is not None  # 384 bytes
        assert self.fused(count=2)[1].packed is None  # 1,152 bytes
        monkeypatch.setattr(packed_weight, "memory", lambda: (None, None))
        assert self.fused(count=1)[1].packed is None

    def test_an_older_torch_goes_without(self, monkeypatch):
        monkeypatch.setattr(packed_weight, "multiplies_bf16", lambda: False)
        assert self.fused()[1].packed is None
