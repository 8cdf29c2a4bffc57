"""Layers compiled by torch.compile compute what they do without it."""

import shutil
from types import SimpleNamespace

import pytest
import torch

from llmserve_lab import SamplingParams
from llmserve_lab.engine.shared_runner import runner_for
from llmserve_lab.models import compiled
from llmserve_lab.models.compiled import CompiledLayer, CompileError
from llmserve_lab.models.int8_linear import linears_to_int8
from tests.conftest import tiny_llama
from tests.engine.reference import greedy_tokens, ids, tokens_of
from tests.models.engines import engine, forward_of, logits_of, prompts_of
from tests.models.families import KNOWN, copied, tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=12)
COMPILERS = ("g++", "clang++", "c++")
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, COMPILERS)), reason="torch.compile needs a C++ compiler"
)


@pytest.fixture
def traced(monkeypatch):
    """All of torch.compile but the generated code: graphs run as torch operators."""
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")


@pytest.fixture(autouse=True)
def forget():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("name", KNOWN)
def test_greedy_tokens_are_those_of_generate(name):
    model = tiny_model(name)
    prompts = prompts_of(1, 2, 5, 8, 9, 30)
    wanted = [greedy_tokens(copied(model), prompt, 12) for prompt in prompts]
    llm = engine(model, max_num_batched_tokens=7, compile=True)
    assert all(isinstance(layer, CompiledLayer) for layer in forward_of(llm).decoder().layers)
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == wanted
    assert len(set(wanted)) > 3


@needs_compiler
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-4), (torch.bfloat16, 0.1)])
def test_generated_code_computes_the_same_logits(dtype, tolerance):
    prompts = prompts_of(*range(3, 13))
    wanted = logits_of(engine(tiny_model("qwen3", dtype)), prompts, 1)
    found = logits_of(engine(tiny_model("qwen3", dtype), compile=True), prompts, 1)
    assert wanted.std() > 0.5
    assert (found - wanted).abs().max() < tolerance * wanted.std()


@needs_compiler
def test_generated_code_serves_as_generate_does():
    model = tiny_model("llama")
    prompts = prompts_of(1, 2, 5, 30)
    wanted = [greedy_tokens(copied(model), prompt, 12) for prompt in prompts]
    llm = engine(model, compile=True, max_num_batched_tokens=7)
    assert tokens_of(llm.generate(ids(*prompts), GREEDY)) == wanted


@pytest.mark.usefixtures("traced")
def test_nothing_is_compiled_after_the_engine_is_made():
    """Neither for another layer, nor for another number of tokens."""
    llm = engine(tiny_model("llama", num_hidden_layers=4), compile=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for lengths in [(1,), (5, 6), (40, 2, 3), (1, 1)]:
            llm.generate(ids(*prompts_of(*lengths)), GREEDY)


@pytest.mark.usefixtures("traced")
def test_every_layer_is_run_with_its_own_weights():
    model = tiny_model("llama", num_hidden_layers=3)
    llm = engine(model, compile=True)
    before = logits_of(llm, prompts_of(5))
    with torch.no_grad():
        model.model.layers[2].mlp.down_proj.weight.mul_(2)
    assert not torch.allclose(logits_of(llm, prompts_of(5)), before)
    plain = logits_of(engine(copied(model)), prompts_of(5))
    torch.testing.assert_close(logits_of(llm, prompts_of(5)), plain, atol=2e-4, rtol=1e-4)


@pytest.mark.usefixtures("traced")
def test_a_model_that_changes_is_looked_at_again():
    """A hook makes it another model, which runs through transformers' modules."""
    model = tiny_model("llama")
    llm = engine(model, compile=True)
    before = logits_of(llm, prompts_of(5))
    handle = model.model.layers[0].register_forward_hook(lambda *_: None)
    assert forward_of(llm).decoder() is None
    torch.testing.assert_close(logits_of(llm, prompts_of(5)), before, atol=2e-4, rtol=1e-4)
    handle.remove()
    assert isinstance(forward_of(llm).decoder().layers[0], CompiledLayer)


@pytest.mark.usefixtures("traced")
def test_many_engines_of_one_process_are_all_compiled():
    """More of them than torch keeps variants of a function."""
    counters = torch._dynamo.utils.counters
    counters.clear()
    widths = range(32, 72, 8)
    with torch._dynamo.config.patch(recompile_limit=4):
        for width in widths:
            model = tiny_model("llama", hidden_size=width, head_dim=8)
            prompt = prompts_of(5)[0]
            wanted = greedy_tokens(copied(model), prompt, 12)
            llm = engine(model, compile=True)
            assert tokens_of(llm.generate(ids(prompt), GREEDY)) == [wanted]
    assert counters["stats"]["unique_graphs"] == 4 * len(widths)  # two parts, for 1 token and more
    assert not counters["graph_break"]


def test_where_no_compiler_works_it_says_so(monkeypatch):
    def broken(graph, inputs):
        raise OSError("no such program: g++")

    monkeypatch.setattr(compiled, "BACKEND", broken)
    with pytest.raises(CompileError, match=r"does not work here \(.*no such program.*g\+\+, and"):
        engine(tiny_model("llama"), compile=True)


def test_what_cannot_be_compiled_is_refused():
    with pytest.raises(TypeError, match="compile must be True or False, not 'yes'"):
        engine(tiny_model("llama"), compile="yes")
    with pytest.raises(ValueError, match="this is a GPT2LMHeadModel that runs through transf"):
        engine(tiny_model("gpt2", n_embd=32, n_layer=2, n_head=4), compile=True)
    model = tiny_llama()
    linears_to_int8(model)
    with pytest.raises(ValueError, match="those in 8 bits have kernels of their own"):
        engine(model, compile=True)


def test_a_model_that_processes_share_is_refused():
    shared = SimpleNamespace(shared=object())
    with pytest.raises(ValueError, match="compile and an attention of your own work in one proc"):
        runner_for(shared, None, "auto", "auto", 0, True)
