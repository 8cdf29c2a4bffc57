"""The lean decoder computes what transformers' modules do, and leaves the model as it was."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.attention import UnsupportedAttentionError
from llmserve_lab.models.load import LoadedModel
from tests.conftest import character_tokenizer, tiny_llama
from tests.engine.reference import greedy_tokens, ids, tokens_of
from tests.models.families import KNOWN, copied, tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def engine(model, **settings):
    loaded = LoadedModel("a test", model, character_tokenizer(), "a test")
    return LLM(loaded, **{"num_blocks": 400, "block_size": 4} | settings)


def forward_of(llm):
    return llm._engine.runner.forward


def prompts_of(*lengths):
    source = random.Random(0)
    return [[source.randrange(1, 64) for _ in range(length)] for length in lengths]


def logits_of(llm, prompts, max_tokens=3):
    """Every row of logits that sampling sees in a run over these prompts, in order."""
    seen = []
    sampler = llm._engine.sampler
    sample = sampler.sample

    def noting(logits, requests):
        seen.append(logits.float())
        return sample(logits, requests)

    sampler.sample = noting
    settings = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    llm.generate(ids(*prompts), settings)
    sampler.sample = sample
    return torch.cat(seen)


def through_transformers(model, **settings):
    """An engine whose forward is that of transformers' own modules."""
    llm = engine(model, **settings)
    forward_of(llm).decoder = lambda: None
    return llm


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("budget", [3, 2048])
def test_greedy_tokens_are_those_of_generate(name, budget):
    model = tiny_model(name)
    prompts = prompts_of(1, 2, 5, 8, 9, 30)
    wanted = [greedy_tokens(copied(model), prompt, 12) for prompt in prompts]
    llm = engine(model, max_num_batched_tokens=budget)
    assert forward_of(llm).decoder() is not None
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == wanted
    assert len(set(wanted)) > 3


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("rows", [1, 8, 12])
def test_logits_are_those_of_the_same_engine_through_transformers(name, rows):
    """Few rows and many: they take different products."""
    model = tiny_model(name)
    prompts = prompts_of(*range(3, 3 + rows))
    wanted = logits_of(through_transformers(copied(model)), prompts)
    found = logits_of(engine(model), prompts)
    assert wanted.std() > 0.5
    torch.testing.assert_close(found, wanted, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("together", [True, False])
def test_in_bfloat16_it_is_no_further_from_the_exact_logits(name, together):
    """Both round, at other places: neither may be the exact one by much more than the other."""
    exact = tiny_model(name, torch.bfloat16).float()
    prompts = prompts_of(*range(3, 43))
    with torch.inference_mode():
        wanted = torch.cat([exact(torch.tensor([p]), logits_to_keep=1).logits[0] for p in prompts])
    limit = {} if together else {"max_num_seqs": 4}
    theirs, ours = (
        logits_of(make(tiny_model(name, torch.bfloat16), **limit), prompts, 1).sub(wanted).std()
        for make in (through_transformers, engine)
    )
    assert 0 < ours < 1.2 * theirs < 0.2 * wanted.std()


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


class OwnLlama(LlamaForCausalLM):
    """It might compute anything."""


@pytest.mark.parametrize("name", ["gpt2", "gemma", "olmo2", "phi3"])
def test_other_architectures_run_through_transformers(name):
    heads = {"num_key_value_heads": 4} if name == "gpt2" else {}  # it has no groups of heads
    model = tiny_model(name, pad_token_id=0, **heads)
    prompts = prompts_of(1, 2, 5, 9)
    wanted = [greedy_tokens(copied(model), prompt, 12) for prompt in prompts]
    llm = engine(model)
    assert forward_of(llm).decoder() is None
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == wanted


def test_a_subclass_runs_through_transformers():
    assert forward_of(engine(OwnLlama(tiny_llama().config).eval())).decoder() is None


def test_made_within_inference_mode():
    """The weights stay ordinary tensors, which training may go on with."""
    model = tiny_model("llama")
    with torch.inference_mode():
        engine(model).generate("abc", GREEDY)
    assert not any(p.is_inference() for p in model.parameters())
    model(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss.backward()


def test_dropout_is_refused_as_it_is_elsewhere():
    model = tiny_model("llama", attention_dropout=0.5)
    llm = engine(model)
    model.train()
    with pytest.raises(UnsupportedAttentionError, match="training mode"):
        llm.generate("abc", GREEDY)
    assert llm.pool.num_used == 0
