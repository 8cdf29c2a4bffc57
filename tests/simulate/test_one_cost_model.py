"""Bytes and operations are counted once: the engine's metrics, the simulator and torch agree."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.engine.work import ModelWork
from llmserve_lab.models.load import LoadedModel
from llmserve_lab.simulate import Deployment, Gpu, ModelSize, StepLoad, decode_estimate
from tests.conftest import character_tokenizer, tiny_llama

LENGTH = 12


def tiny_mixtral():
    """4 experts, 2 of them per token."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
        max_position_embeddings=128,
    )  # fmt: skip
    model = MixtralForCausalLM(config).eval()
    model.set_experts_implementation("eager")  # products that torch's counter knows
    return model


def tied_llama():
    return tiny_llama(tie_word_embeddings=True)


MODELS = [tiny_llama, tied_llama, tiny_mixtral]


class LinearCount(FlopCounterMode):
    """Operations of products of two matrices; those of attention have a batch of them."""

    def __init__(self):
        super().__init__(display=False)

    @property
    def linear(self):
        counts = self.get_flop_counts()["Global"]
        return sum(n for op, n in counts.items() if str(op) in ("aten.mm", "aten.addmm"))


def counted_operations(model):
    """Every output of a Linear layer or an expert, counted by torch while the model runs."""
    with LinearCount() as counter, torch.inference_mode():
        model(torch.arange(1, LENGTH + 1)[None], logits_to_keep=1)
    return counter.linear


@pytest.mark.parametrize("build", MODELS)
def test_the_products_of_a_prompt_are_those_that_torch_counts(build):
    model = build()
    work, size = ModelWork.of(model, 0), ModelSize.of("tiny", model)
    counted = counted_operations(model)
    assert work.linear_flops(LENGTH, samples=1) == counted
    assert size.work.linear_flops(LENGTH, samples=1) == counted


@pytest.mark.parametrize("build", MODELS)
def test_the_engines_metrics_are_what_torch_counts_while_it_serves(build):
    """Prefill, decode, several requests: the operations of all Linear layers and experts, through
    transformers' own layers, which a hook asks for."""
    model = build()
    model.get_output_embeddings().register_forward_hook(lambda *given: None)
    loaded = LoadedModel("tiny", model, character_tokenizer(), "a test")
    llm = LLM(loaded, num_blocks=64, block_size=4, max_num_batched_tokens=8)
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    with LinearCount() as counter:
        outputs = llm.generate(["abcdefghijk", "xyz"], params)
    lengths = [len(out.prompt_token_ids) + 4 for out in outputs]  # the last token never runs
    pairs = sum(n * (n + 1) // 2 for n in lengths)
    work = ModelWork.of(loaded.model, 0)
    assert llm.metrics.flops == counter.linear + work.attention_flops(pairs)


@pytest.mark.parametrize("build", MODELS)
def test_a_models_size_and_its_matrices_give_the_same_work(build):
    model = build()
    size = ModelSize.of("tiny", model)
    per_token = size.kv.bytes_per_token(1) * 4
    assert size.work == ModelWork.of(model, per_token)
    weights = {p.data_ptr(): p.numel() for p in model.parameters()}
    assert size.parameters == sum(weights.values())


@pytest.mark.parametrize("build", MODELS)
def test_the_simulator_charges_the_same_work(build):
    """On a device that does one operation, or moves one byte, per second."""
    model = build()
    size, load = ModelSize.of("tiny", model), StepLoad.prefill(LENGTH)
    work = size.work.of_load(load)
    slow_maths = Gpu("maths", 2, 1e30, 1.0, "a test")
    slow_memory = Gpu("memory", 2, 1.0, 1e30, "a test")
    for gpu, amount in ((slow_maths, work.flops), (slow_memory, work.num_bytes)):
        parts = Deployment(size, gpu).parts(load)
        assert parts.linear + parts.attention == pytest.approx(amount)
    decode = size.work.of_load(StepLoad.decode(3, 20))
    assert decode_estimate(size, slow_maths, 3, 20).seconds == pytest.approx(decode.flops)
    assert decode_estimate(size, slow_memory, 3, 20).seconds == pytest.approx(decode.num_bytes)


def test_the_formula_of_the_course_is_two_percent_above_for_llama2_7b():
    size = ModelSize.llama2_7b()
    table, norms = 32_000 * 4096, 65 * 4096
    assert (table + norms) / size.parameters == pytest.approx(0.02, abs=0.002)
    assert "for Llama-2-7B that is 2% too much" in " ".join(ModelSize.__doc__.split())
