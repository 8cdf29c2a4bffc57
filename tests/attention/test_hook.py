"""A model attends through the cache within `paged`, and as before outside."""

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, MistralConfig, MistralForCausalLM

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.attention import UnsupportedAttentionError, paged
from llmserve_lab.models.load import LoadedModel
from tests.conftest import character_tokenizer, tiny_llama

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
SMALL = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64,
    "head_dim": 8,
}  # fmt: skip


def loaded(model):
    return LoadedModel("other", model.eval(), character_tokenizer(), "a test")


@pytest.mark.parametrize("before", ["sdpa", "eager"])
def test_the_model_is_restored(before):
    model = tiny_llama()
    model.set_attn_implementation(before)
    with paged(model):
        assert model.config._attn_implementation != before
    assert model.config._attn_implementation == before
    with pytest.raises(ZeroDivisionError), paged(model):
        _ = 1 / 0
    assert model.config._attn_implementation == before


def test_a_plain_forward_within_says_what_to_do():
    model = tiny_llama()
    with paged(model), pytest.raises(ValueError, match=r"call LLM\.generate"):
        model(torch.tensor([[1, 2]]))


def test_softcapped_attention_is_refused_rather_than_computed_wrongly():
    model = Gemma2ForCausalLM(Gemma2Config(**SMALL, attn_logit_softcapping=50.0))
    llm = LLM(loaded(model), num_blocks=8)
    with pytest.raises(UnsupportedAttentionError, match="softcap"):
        llm.generate("abc", GREEDY)
    assert llm.pool.num_used == 0
    assert not llm.has_work


def test_a_sliding_window_is_honoured_as_far_as_it_does_not_slide():
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**SMALL, sliding_window=8))
    llm = LLM(loaded(model), num_blocks=8)
    output = llm.generate("ab", GREEDY)[0].outputs[0]
    with torch.inference_mode():
        wanted = model.generate(
            torch.tensor([[1, 2]]), max_new_tokens=6, do_sample=False, eos_token_id=None
        )
    assert output.token_ids == tuple(wanted[0, 2:].tolist())
    with pytest.raises(UnsupportedAttentionError, match="sliding window of 8 tokens"):
        llm.generate("abcdefgh", GREEDY)
    assert not llm.has_work
