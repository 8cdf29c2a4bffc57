"""Whatever becomes of the model, the engine computes it in the next step."""

import pytest
import torch

from llmserve_lab import SamplingParams
from tests.models.engines import engine, forward_of, logits_of, prompts_of, through_transformers
from tests.models.families import tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def test_a_hook_is_called_and_its_removal_is_noticed():
    model, prompts = tiny_model("llama"), prompts_of(4)
    llm, seen = engine(model), []
    wanted = logits_of(llm, prompts)
    for name in ("register_forward_hook", "register_forward_pre_hook"):
        handle = getattr(model.model.layers[1].mlp, name)(lambda *args: seen.append(1))
        torch.testing.assert_close(logits_of(llm, prompts), wanted, atol=2e-4, rtol=1e-4)
        assert len(seen) == 3  # one for each step
        seen.clear()
        handle.remove()
    logits_of(llm, prompts)
    assert not seen
    assert forward_of(llm).decoder() is not None


def replace_a_layer(model):
    model.model.layers[0].mlp.up_proj = torch.nn.Linear(32, 48, bias=False)


def replace_a_parameter(model):
    model.model.layers[0].self_attn.k_proj.weight = torch.nn.Parameter(torch.randn(16, 32))


def move_the_numbers(model):
    weight = model.model.layers[0].self_attn.k_proj.weight
    weight.data = weight.data * 2


def write_in_place(model):
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight.mul_(2)


def use_fewer_layers(model):
    model.config.num_hidden_layers = 1


def wrap_a_forward(model):
    mlp = model.model.layers[0].mlp
    original = mlp.forward
    mlp.forward = lambda hidden: 2 * original(hidden)


@pytest.mark.parametrize("change", [
    replace_a_layer, replace_a_parameter, move_the_numbers, write_in_place, use_fewer_layers,
    wrap_a_forward,
])  # fmt: skip
def test_a_change_of_the_model_is_noticed(change):
    model, prompts = tiny_model("llama"), prompts_of(4, 7)
    llm = engine(model)
    before = logits_of(llm, prompts)
    change(model)
    found = logits_of(llm, prompts)
    wanted = logits_of(through_transformers(model), prompts)
    torch.testing.assert_close(found, wanted, atol=2e-4, rtol=1e-4)
    assert not torch.allclose(found, before, atol=1e-2)
