"""The lean decoder computes what transformers' modules do."""

import pytest
import torch
from transformers import LlamaForCausalLM

from llmserve_lab import SamplingParams
from llmserve_lab.attention import UnsupportedAttentionError, cpu_kernels
from llmserve_lab.models import kernels
from tests.conftest import tiny_llama
from tests.engine.reference import greedy_tokens, ids, tokens_of
from tests.models.engines import engine, forward_of, logits_of, prompts_of, through_transformers
from tests.models.families import KNOWN, copied, tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=12)


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


def test_dropout_is_refused_as_it_is_elsewhere():
    model = tiny_model("llama", attention_dropout=0.5)
    llm = engine(model)
    model.train()
    with pytest.raises(UnsupportedAttentionError, match="training mode"):
        llm.generate("abc", GREEDY)
    assert llm.pool.num_used == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama_biased", "qwen3"])
def test_no_kernel_is_compiled_in_a_step(name, dtype):
    """Compiling takes seconds: it belongs to the making of the engine."""
    llm = engine(tiny_model(name, dtype))
    dispatchers = (cpu_kernels.decode, kernels.product, kernels.rms_norm)
    compiled = [set(dispatcher.signatures) for dispatcher in dispatchers]
    assert all(compiled)
    for count in (1, 12):
        llm.generate(ids(*prompts_of(*range(3, 3 + count))), GREEDY)
    assert [set(dispatcher.signatures) for dispatcher in dispatchers] == compiled
