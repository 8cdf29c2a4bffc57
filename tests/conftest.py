"""For all tests: whoever runs them keeps their own progress file as it is, and processes that run
tests side by side share the cores."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(  # no test depends on a time
    "whatever the machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("whatever the machine")

if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):  # before torch counts cores
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))


@pytest.fixture(scope="session", autouse=True)
def course_home(tmp_path_factory):
    """A home of the course for this session; a test may set one of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMSERVE_LAB_HOME", str(tmp_path_factory.mktemp("home")))
        yield


TINY_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "


def character_tokenizer():
    """63 characters, one token each, and an end-of-text token (0): 64 in all."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<|endoftext|>": 0} | {c: i for i, c in enumerate(TINY_CHARACTERS, start=1)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.Fuse()
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=end, eos_token=end)


def tiny_llama(vocab_size=64, context=128, seed=0, **settings):
    """A random Llama of 2 layers whose greedy text does not repeat one token for ever."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, max_position_embeddings=context,
        initializer_range=0.4, bos_token_id=0, eos_token_id=0, **settings,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def tiny():
    """A LoadedModel small enough for hundreds of runs."""
    from llmserve_lab.models.load import LoadedModel

    return LoadedModel("tiny", tiny_llama(), character_tokenizer(), "a test")


@pytest.fixture(scope="session")
def byte_tokenizer():
    """A byte-level BPE tokenizer like the bundled one, learned from a part of the same text."""
    from llmserve_lab.models.corpus import held_out_sample
    from llmserve_lab.models.tokenizer import train_tokenizer

    return train_tokenizer([file.text for file in held_out_sample()[:6]], max_length=1024)


def fill_with_nan(llm):
    """Make every slot NaN except the null block: whoever reads an unwritten one is found out."""
    for part in llm._engine.runner.cache.by_block():
        part[:-1] = float("nan") if part.is_floating_point() else part.new_tensor(255)


@pytest.fixture
def make_llm(tiny):
    """Engines over NaN-filled caches; afterwards every one must hold nothing any more."""
    from llmserve_lab import LLM

    made = []

    def make(model=tiny, **settings):
        llm = LLM(model, **({"num_blocks": 64, "block_size": 4} | settings))
        fill_with_nan(llm)
        made.append(llm)
        return llm

    yield make
    for llm in made:
        assert_as_new(llm)


def assert_as_new(llm):
    """No request, no block and no half-done thing is left."""
    llm.pool.check_integrity()
    assert llm.pool.num_used == 0
    assert sum(llm.pool.refs()) == 0
    assert not llm.has_work
    engine = llm._engine
    left = (engine.requests, engine.detokenizers, engine.sampler.edits, engine._to_abort)
    assert not any(left), left
    assert not llm._calls._open
    assert not llm.scheduler.waiting
    assert not llm.scheduler.running
