"""What `draft` may be, what it costs, and what is refused in one sentence."""

import pytest

from llmserve_lab import LLM, PromptLookup, SamplingParams
from llmserve_lab.engine.capacity import Capacity
from llmserve_lab.models.load import LoadedModel, load
from llmserve_lab.speculative import Proposer
from tests.conftest import character_tokenizer, tiny_llama
from tests.engine.reference import ids, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def other_tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {f"<{n}>": n for n in range(64)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<0>")


class Silent:
    def propose(self, token_ids, num_tokens):
        return []


class Mute:
    pass


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"num_draft_tokens": 3}, ValueError, "num_draft_tokens needs a draft"),
        ({"draft": Silent(), "num_draft_tokens": 0}, ValueError, "num_draft_tokens must be at"),
        ({"draft": Silent(), "num_draft_tokens": 2.5}, TypeError, "num_draft_tokens must be a"),
        ({"draft": Silent(), "num_draft_tokens": True}, TypeError, "num_draft_tokens must be a"),
        ({"draft": Silent}, TypeError, r"draft must be a model's name .*PromptLookup\(\); not"),
        ({"draft": Mute()}, TypeError, "draft must be a model's name"),
        ({"draft": 4}, TypeError, "draft must be a model's name"),
        ({"draft": Silent(), "cuda_graphs": True}, ValueError, "leave one of the two out"),
        ({"draft": "no-such-model"}, LookupError, "no model 'no-such-model'"),
    ],
)
def test_refused(tiny, settings, kind, words):
    with pytest.raises(kind, match=words) as error:
        LLM(tiny, **settings)
    assert "\n" not in str(error.value)


def test_another_vocabulary_or_tokenizer_is_refused(tiny):
    larger = LoadedModel("larger", tiny_llama(vocab_size=80), character_tokenizer(), "a test")
    with pytest.raises(ValueError, match="larger has a vocabulary of 80 tokens and tiny of 64"):
        LLM(tiny, draft=larger)
    other = LoadedModel("other", tiny_llama(), other_tokenizer(), "a test")
    with pytest.raises(ValueError, match="other and tiny have different tokenizers"):
        LLM(tiny, draft=other)
    with pytest.raises(ValueError, match="lab-draft has a vocabulary of 4096 tokens and tiny"):
        LLM(tiny, draft="lab-draft")


def test_a_draft_by_name_is_loaded_like_the_target():
    import torch

    llm = LLM(load("lab-target", "bfloat16"), draft="lab-draft", num_blocks=4)
    assert llm._engine.speculation.drafter.runner.model.dtype == torch.bfloat16


def test_the_shorter_context_counts(tiny):
    short = LoadedModel("short", tiny_llama(context=32), character_tokenizer(), "a test")
    assert LLM(tiny).max_model_len == 128
    assert LLM(tiny, draft=short).max_model_len == 32
    with pytest.raises(ValueError, match="max_model_len must be at most 32"):
        LLM(tiny, draft=short, max_model_len=64)


def test_the_memory_of_the_draft_is_planned_for(tiny, drafts):
    def plan(draft):
        return Capacity.plan(tiny, None, 100, 4, None, 100_000, 0.9, draft=draft)

    alone, both = plan(None), plan(tiny.model)
    assert both.draft_bytes == both.block_bytes == alone.block_bytes > alone.draft_bytes == 0
    assert both.num_blocks == alone.num_blocks // 2
    llm = LLM(tiny, draft=drafts["far"], kv_cache_memory_bytes=50_000, block_size=4)
    caches = llm.scheduler.tables.store.caches
    block = sum(cache.num_bytes for cache in caches) // (llm.capacity.num_blocks + 1)
    assert block == llm.capacity.block_bytes + llm.capacity.draft_bytes
    assert llm.capacity.num_blocks * block <= 50_000 < (llm.capacity.num_blocks + 1) * block


def test_what_a_proposer_is():
    assert isinstance(PromptLookup(), Proposer)
    assert isinstance(Silent(), Proposer)
    assert not isinstance(Mute(), Proposer)


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_quantized_caches(make_spec, make_llm, bits):
    """Where no draft is rejected, no grid is widened: the same tokens. With other drafts the
    engine still serves, and what it computes is its own."""
    right = make_llm(kv_cache_dtype=bits).generate(ids([1, 2, 3, 4]), GREEDY)
    wanted = [1, 2, 3, 4, *tokens_of(right)[0]]

    class Right:
        def propose(self, token_ids, num_tokens):
            return wanted[len(token_ids) : len(token_ids) + num_tokens]

    llm = make_spec(Right(), kv_cache_dtype=bits, num_draft_tokens=1)
    found = tokens_of(llm.generate(ids([1, 2, 3, 4]), GREEDY))
    assert len(found[0]) == 12
    llm = make_spec("near", kv_cache_dtype=bits)
    (output,) = llm.generate(ids([1, 2, 3, 4]), GREEDY)
    assert len(output.outputs[0].token_ids) == 12
    assert llm.metrics.proposed_tokens > 0


def test_a_model_without_a_tokenizer_may_have_a_draft(tiny):
    bare = LoadedModel("bare", tiny.model, None, tiny.why_dtype)
    alone, drafted = (
        llm.generate(ids([1, 2]), GREEDY) for llm in (LLM(tiny), LLM(bare, draft=tiny))
    )
    assert tokens_of(drafted) == tokens_of(alone)
