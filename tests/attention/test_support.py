"""A model that the engine would not compute exactly is refused by name when the engine is made."""

import re

import pytest
import torch
import transformers

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.attention import UnsupportedAttentionError, require_decoder, required_features
from llmserve_lab.kv_cache import KVShape
from llmserve_lab.models.load import LoadedModel
from tests.conftest import character_tokenizer, tiny_llama
from tests.engine.reference import greedy_tokens, ids, tokens_of
from tests.models.architectures import BASE, FAMILIES, make, random_model

MLA = {
    "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 2, "n_routed_experts": 4,
}  # fmt: skip
LONGROPE = {
    "original_max_position_embeddings": 16,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 16,
        "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
    },
}  # fmt: skip
STATE = {"state_size": 4, "num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 64}
LLAMA_4 = {
    "attention_chunk_size": 16, "head_dim": 8, "intermediate_size_mlp": 48, "num_local_experts": 2,
    "layer_types": ["chunked_attention"] * 2, "rope_parameters": {"rope_theta": 10000.0,
    "rope_type": "default"},
}  # fmt: skip
OWN_CODE = "in its own code, such as ALiBi .* 2 of 2 layers"  # Falcon's up to transformers 5.24
OWN_MASK = "its layers make attention masks of their own"
FALCONS = {
    "one KV head": {"num_key_value_heads": 1},
    "two": {"num_kv_heads": 2, "new_decoder_architecture": True},
    "a KV head each": {"num_key_value_heads": 4, "multi_query": False},
}
REFUSED = {
    "ALiBi, BLOOM": ("BloomForCausalLM", {}, "does not take position_ids"),
    "ALiBi, MPT": ("MptForCausalLM", {"d_model": 32}, "does not take position_ids"),
    "ALiBi, Falcon": ("FalconForCausalLM", {"alibi": True}, f"{OWN_CODE}|{OWN_MASK}"),
    "Mamba": ("MambaForCausalLM", STATE, "keeps a recurrent state"),
    "Mamba beside attention": ("JambaForCausalLM", {}, "keeps a recurrent state"),
    "T5": ("T5ForConditionalGeneration", {"d_model": 32}, "is an encoder-decoder"),
    "BERT": ("BertLMHeadModel", {}, "chunked or bidirectional attention"),
    "no output layer": ("LlamaModel", {}, "no output layer over the vocabulary"),
    "chunks": ("Llama4ForCausalLM", LLAMA_4, "chunked or bidirectional attention"),
    "keys and values differ": ("DeepseekV3ForCausalLM", MLA, "keys of 12 and values of 8"),
    "head dims differ": (
        "Gemma4ForCausalLM",
        {"head_dim": 8, "global_head_dim": 16},
        "same KV heads in every layer",
    ),
    "longrope": ("Phi3ForCausalLM", LONGROPE, "set max_model_len to at most 16"),
}


def serve(model, **settings):
    loaded = LoadedModel("tiny", model, character_tokenizer(), "a test")
    return LLM(loaded, **({"num_blocks": 16, "block_size": 4} | settings))


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_by_name(kind):
    class_name, settings, words = REFUSED[kind]
    model = random_model(class_name, **settings)
    own = model.config._attn_implementation
    with pytest.raises(UnsupportedAttentionError, match=words) as error:
        serve(model)
    message = str(error.value)
    assert message.startswith(class_name)
    assert message.count(".") - message.count("model.") <= 1, message
    assert "\n" not in message
    assert model.config._attn_implementation == own


@pytest.mark.parametrize("kind", FALCONS)
def test_falcon_is_served_where_it_calls_the_attention_interface(kind):
    model = random_model("FalconForCausalLM", **FALCONS[kind])
    try:
        llm = serve(model)
    except UnsupportedAttentionError as error:
        assert re.search(OWN_CODE, str(error)), error
    else:
        params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
        prompt = [3, 1, 4, 1, 5]
        expected = greedy_tokens(model, prompt, 12)
        assert tokens_of(llm.generate(ids(prompt), params)) == [expected]


def test_heads_that_differ_from_layer_to_layer():
    model = make("Llama")
    other = random_model("LlamaForCausalLM", num_key_value_heads=4)
    other.model.layers[1].self_attn.config = model.config
    model.model.layers[1].self_attn = other.model.layers[1].self_attn
    with pytest.raises(UnsupportedAttentionError, match=r"has 4 KV heads .* in layer 1"):
        serve(model)


def test_training_mode():
    with pytest.raises(ValueError, match=r"call model\.eval\(\) first"):
        require_decoder(tiny_llama().train())


class Leaky(transformers.LlamaForCausalLM):
    """Each token also sees the embedding of the one before it in the batch, whosever it is."""

    def __init__(self, config):
        super().__init__(config)
        self.model.embed_tokens.register_forward_hook(
            lambda module, args, output: output + output.roll(1, 1)
        )


class OwnPositions(transformers.LlamaForCausalLM):
    """Counts positions itself, from the start of the batch."""

    def forward(self, input_ids, position_ids=None, logits_to_keep=0, **options):
        counted = torch.arange(input_ids.shape[1])[None]
        return super().forward(
            input_ids, position_ids=counted, logits_to_keep=logits_to_keep, **options
        )


@pytest.mark.parametrize("model_class", [Leaky, OwnPositions])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_connects_tokens_besides_attention(model_class, dtype):
    """On trained weights, which are harder to disturb than random ones."""
    loaded = load("lab-target", dtype=dtype, device="cpu")
    required_features(loaded.model, KVShape.of(loaded.model.config), 64)
    model = model_class(loaded.model.config).to(loaded.model.dtype).eval()
    model.load_state_dict(loaded.model.state_dict())
    with pytest.raises(UnsupportedAttentionError, match="differ from those of its plain forward"):
        required_features(model, KVShape.of(model.config), 64)


class Breaks(transformers.LlamaForCausalLM):
    def forward(self, input_ids, position_ids=None, logits_to_keep=0, **options):
        raise KeyError("a setting that is not there")


def test_what_does_not_run_is_told_with_the_reason():
    model = Breaks(transformers.LlamaConfig(**BASE)).eval()
    with pytest.raises(UnsupportedAttentionError, match=r"does not run .*KeyError.*a setting"):
        serve(model)


def test_chunks_and_longrope_up_to_where_they_matter():
    """Within the first chunk, and before the frequencies change, they are plain attention."""
    prompt = [3, 1, 4, 1, 5]
    params = SamplingParams(temperature=0, max_tokens=11, ignore_eos=True)
    for kind in ("chunks", "longrope"):
        class_name, settings, _ = REFUSED[kind]
        model = random_model(class_name, **settings)
        output = serve(model, max_model_len=16).generate(ids(prompt), params)
        assert tokens_of(output) == [greedy_tokens(model, prompt, 11)]


def test_the_trial_does_not_depend_on_the_implementation_in_use():
    """Sdpa refuses soft caps or, in older transformers, leaves them out."""
    model = make("Gemma 2")
    model.config._attn_implementation = "sdpa"
    serve(model)
    assert model.config._attn_implementation == "sdpa"


def test_the_shortest_model_length():
    """The trial takes three tokens, and fewer where no more fit."""
    for name in ("Llama", "GPT-2"):
        assert serve(make(name), max_model_len=2).max_model_len == 2


def test_backends_say_what_they_do_not_compute():
    model = make("gpt-oss")
    with pytest.raises(ValueError, match=r"cpu attention backend does not work here: .* sinks"):
        serve(model, attention_backend="cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_family_is_refused_for_its_rounding(dtype):
    for name in FAMILIES:
        serve(make(name, dtype))
