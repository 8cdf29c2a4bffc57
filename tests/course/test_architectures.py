"""Published models: dimensions as their configs have them, sizes as those give them."""

import pytest

from llmserve_lab.course.architectures import PUBLISHED, Architecture, published
from llmserve_lab.simulate import ModelSize

PARAMETERS = {  # as their makers say, in billions
    "Llama-2-7B": 6.74, "Llama-3.1-8B": 8.03, "Llama-3.1-70B": 70.6, "Qwen2.5-7B": 7.62,
    "Falcon-7B": 6.92, "Mixtral-8x7B": 46.7, "DeepSeek-V2-Lite": 15.7, "DeepSeek-V3": 671,
}  # fmt: skip
KV_KIB = {  # of a token, 2 bytes a number: layers x what a layer keeps
    "Llama-2-7B": 32 * 2 * 32 * 128 / 512, "Llama-3.1-8B": 32 * 2 * 8 * 128 / 512,
    "Qwen2.5-7B": 28 * 2 * 4 * 128 / 512, "Falcon-7B": 32 * 2 * 64 / 512,
    "DeepSeek-V2-Lite": 27 * (512 + 64) / 512, "DeepSeek-V3": 61 * (512 + 64) / 512,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_as_many_parameters_as_its_makers_say(name):
    assert published(name).parameters == pytest.approx(PARAMETERS[name] * 1e9, rel=0.002)
    assert PUBLISHED[name].source.count("/") == 1


@pytest.mark.parametrize("name", KV_KIB)
def test_what_a_token_keeps(name):
    assert published(name).kv_values * 2 / 1024 == KV_KIB[name]


def test_kinds_of_attention():
    kinds = {name: published(name).attention for name in PUBLISHED}
    assert set(kinds.values()) == {"MHA", "GQA", "MQA", "MLA"}
    assert kinds["Falcon-7B"] == "MQA" and kinds["DeepSeek-V3"] == "MLA"


def test_active_parameters_are_those_of_the_experts_in_use():
    assert published("Mixtral-8x7B").active_parameters == 12_879_925_248
    assert published("DeepSeek-V3").active_parameters == pytest.approx(37.5e9, rel=0.01)
    assert published("Llama-2-7B").active_parameters == published("Llama-2-7B").parameters


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Llama-2-7B", ModelSize.llama2_7b()),
        ("Llama-3.1-8B", ModelSize.llama3_8b()),
        ("Llama-3.1-70B", ModelSize.llama3_70b()),
        ("Mixtral-8x7B", ModelSize.mixtral_8x7b()),
    ],
)
def test_it_agrees_with_the_simulator(name, size):
    a = published(name)
    assert (a.parameters, a.expert_parameters) == (size.parameters, size.expert_parameters)
    assert 2 * a.kv_values == size.kv_bytes(1)


def test_the_size_of_llama2_13b_is_that_of_its_config():
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=32000, hidden_size=5120, intermediate_size=13824, num_hidden_layers=40,
        num_attention_heads=40, num_key_value_heads=40,
    )  # fmt: skip
    counted, size = Architecture.of("Llama-2-13B", config), ModelSize.llama2_13b()
    assert (counted.parameters, counted.hidden) == (size.parameters, size.hidden)
    assert 2 * counted.kv_values == size.kv_bytes(1) == 800 * 1024


def test_the_peak_moves_from_the_layer_to_the_logits():
    a = published("Llama-3.1-8B")
    assert a.activation_values(2048, 1) == 2048 * (3 * 14336 + 4 * 4096)
    assert a.activation_values(64, 64) == 64 * (128256 + 4096)


def test_an_unknown_model_names_those_there_are():
    with pytest.raises(ValueError, match=r"no model 'GPT'; there are Llama-2-7B, "):
        published("GPT")


def test_a_loaded_model_is_counted_as_it_is():
    from llmserve_lab import load

    model = load("lab-target")
    a = Architecture.of("lab-target", model.model.config)
    assert a.parameters == model.num_parameters
    assert (a.num_layers, a.num_kv_heads, a.head_dim, a.attention) == (6, 2, 64, "GQA")
