"""The bundled pair: what its files promise, measured again on the sample that ships."""

import json

import pytest
import torch

from llmserve_lab import SamplingParams, load
from llmserve_lab.models import corpus
from llmserve_lab.models.evaluate import greedy_agreement, gzip_bits_per_byte, score
from llmserve_lab.models.load import BUNDLED, bundled_path
from llmserve_lab.models.recipe import DRAFT, TARGET
from tests.engine.reference import greedy_tokens

pytestmark = pytest.mark.skipif(
    not all((bundled_path(name) / "metrics.json").is_file() for name in BUNDLED),
    reason="the bundled pair is not trained yet (python -m llmserve_lab.models.train)",
)
LARGEST = 25_000_000  # bytes, both models with everything beside them
SOME_FILES = 3


@pytest.fixture(scope="module")
def pair():
    return {name: load(name, dtype="float32", device="cpu") for name in BUNDLED}


def metrics(name):
    return json.loads((bundled_path(name) / "metrics.json").read_text(encoding="utf-8"))


def sample():
    return [file.text for file in corpus.held_out_sample()]


def test_the_pair_is_small():
    files = [path for name in BUNDLED for path in bundled_path(name).iterdir()]
    assert sum(path.stat().st_size for path in files) <= LARGEST


def test_parameters(pair):
    target, draft = (pair[name].num_parameters for name in BUNDLED)
    assert 5e6 <= target <= 8e6
    assert 7 <= target / draft <= 14
    assert [metrics(name)["parameters"] for name in BUNDLED] == [target, draft]


@pytest.mark.parametrize("recipe", [TARGET, DRAFT], ids=lambda recipe: recipe.name)
def test_other_libraries_load_them(recipe):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = bundled_path(recipe.name)
    model = AutoModelForCausalLM.from_pretrained(path)
    config = model.config
    assert config.model_type == "llama"
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert config.vocab_size == len(AutoTokenizer.from_pretrained(path)) == 4096
    assert config.max_position_embeddings == 1024
    assert config.num_key_value_heads < config.num_attention_heads
    wanted = recipe.config()
    for name in ("hidden_size", "num_hidden_layers", "num_key_value_heads", "head_dim"):
        assert getattr(config, name) == getattr(wanted, name)


def test_both_have_one_tokenizer():
    texts = [(bundled_path(name) / "tokenizer.json").read_bytes() for name in BUNDLED]
    assert texts[0] == texts[1]


def test_the_tokenizer_keeps_every_character_of_the_sample(pair):
    tokenizer = pair["lab-target"].tokenizer
    for text in sample():
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_bits_per_byte_are_within_what_was_asked_for():
    target = metrics("lab-target")
    assert target["bits_per_byte"] <= 1.35
    assert target["held_out_files"] >= 30
    assert target["gzip_bits_per_byte"] > target["bits_per_byte"]
    assert target["bits_per_byte"] < metrics("lab-draft")["bits_per_byte"]


@pytest.mark.parametrize("name", BUNDLED)
def test_bits_per_byte_measured_again(pair, name):
    """On the whole sample: some 86,000 tokens, seconds on two cores."""
    texts = sample()
    result = score(pair[name].model, pair[name].tokenizer, texts)
    assert result.bits_per_byte == pytest.approx(metrics(name)["sample_bits_per_byte"], abs=2e-3)
    assert result.bits_per_byte < gzip_bits_per_byte(texts)


def test_the_draft_agrees_with_the_target(pair):
    recorded = metrics("lab-draft")["greedy_agreement_with_target"]
    assert recorded >= 0.55
    target, draft = (pair[name] for name in BUNDLED)
    again = greedy_agreement(target.model, draft.model, target.tokenizer, sample()[:SOME_FILES])
    assert again == pytest.approx(recorded, abs=0.12)
    assert again >= 0.5


@pytest.mark.parametrize("name", BUNDLED)
def test_the_card_says_what_the_metrics_say(name):
    card = (bundled_path(name) / "README.md").read_text(encoding="utf-8")
    values = metrics(name)
    assert f"{values['parameters']:,}" in card
    assert f"| {values['bits_per_byte']} (" in card
    assert values["corpus_sha256"] in card
    assert "PSF" in card
    assert values["curve"][0][1] > values["curve"][-1][1]


@pytest.mark.parametrize("name", BUNDLED)
def test_greedy_tokens_equal_generate(pair, name):
    """The one exact comparison on real weights, in a batch over a small pool."""
    from llmserve_lab import LLM

    loaded = pair[name]
    prompts = ["def main():\n", "import os\n\n\nclass Path", "#"]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=False)
    llm = LLM(loaded, num_blocks=6, max_num_batched_tokens=5)
    for output in llm.generate(prompts, params):
        wanted = greedy_tokens(loaded.model, list(output.prompt_token_ids), 24)
        assert output.outputs[0].token_ids == wanted
        assert output.outputs[0].text == loaded.tokenizer.decode(wanted, skip_special_tokens=True)
    assert llm.pool.num_used == 0
