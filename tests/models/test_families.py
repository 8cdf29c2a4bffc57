"""Whatever the family, the engine's greedy tokens are those of transformers' generate."""

import pytest
import torch

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.attention import cpu, reference
from llmserve_lab.engine.work import ModelWork
from llmserve_lab.models.load import LoadedModel
from tests.conftest import assert_as_new, character_tokenizer, fill_with_nan
from tests.engine.reference import greedy_tokens, ids, tokens_of
from tests.models.architectures import FAMILIES, WINDOW, make, random_model

MAX_TOKENS = 12
GREEDY = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)
LONGER = [[5, 9, 2, 7, 11, 3, 8, 30, 2, 2, 17], [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]]
PROMPTS = [*LONGER, [8, 3, 1, 6, 4], [9]]
BACKENDS = {"auto": {"gpt-oss": reference}, "reference": dict.fromkeys(FAMILIES, reference)}


def serve(model, **settings):
    """An engine that chunks prompts and, with its 10 blocks, preempts; over a cache of NaN."""
    loaded = LoadedModel("tiny", model, character_tokenizer(), "a test")
    defaults = {"num_blocks": 10, "block_size": 4, "max_num_batched_tokens": 7}
    llm = LLM(loaded, **(defaults | settings))
    fill_with_nan(llm)
    return llm


def expected(model):
    """Tokens of `generate`, which must vary to prove anything."""
    tokens = [greedy_tokens(model, prompt, MAX_TOKENS) for prompt in PROMPTS]
    assert len(set(tokens)) == len(PROMPTS)
    assert max(len(set(one)) for one in tokens) > MAX_TOKENS // 2
    return tokens


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_tokens_and_the_model_as_before(name):
    """Chunked prefill beside decode, preemption, alone with a prefix that is found again."""
    model = make(name)
    own, plain = model.config._attn_implementation, torch.tensor([PROMPTS[0]])
    with torch.inference_mode():
        before = model(plain).logits
    wanted = expected(model)
    for backend, others in BACKENDS.items():
        llm = serve(model, attention_backend=backend, enable_prefix_caching=True)
        assert llm._engine.runner.attention is others.get(name, cpu).paged_attention
        outputs = llm.generate(ids(*PROMPTS), GREEDY)
        assert tokens_of(outputs) == wanted
        assert sum(output.metrics.num_preemptions for output in outputs) > 0
        again = [llm.generate(ids(prompt)[0], GREEDY)[0] for prompt in PROMPTS[:2]]
        again += llm.generate(ids(PROMPTS[1])[0], GREEDY)
        assert tokens_of(again) == [*wanted[:2], wanted[1]]
        assert again[-1].metrics.num_hit_tokens == 8
        assert_as_new(llm)
    assert model.config._attn_implementation == own
    for _ in range(2):
        with torch.inference_mode():
            assert torch.equal(model(plain).logits, before)


WITHOUT = {
    "Mistral": ("sliding_window", None),
    "Phi-3": ("sliding_window", None),
    "Gemma 2": ("attn_logit_softcapping", None),
    "Gemma 3": ("layer_types", ["full_attention"] * 2),
    "gpt-oss": ("layer_types", ["full_attention"] * 2),
    "Qwen2, windows in later layers": ("layer_types", ["full_attention"] * 2),
    "Granite, scaling": ("attention_multiplier", 0.3),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_the_feature_decides_the_tokens(name):
    """Else a family would pass whose window, cap or scale the engine forgot."""
    setting, value = WITHOUT[name]
    class_name, settings = FAMILIES[name]
    other = random_model(class_name, **(settings | {setting: value}))
    prompts = LONGER if setting != "attention_multiplier" else PROMPTS
    assert [greedy_tokens(other, p, MAX_TOKENS) for p in prompts] != [
        greedy_tokens(make(name), p, MAX_TOKENS) for p in prompts
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Mistral", "Gemma 2", "GPT-2", "OLMo 2"])
def test_in_16_bits_only_near_ties_may_swap(name, dtype):
    """Each token that the engine chose has, in the model's plain forward over the same text, the
    highest logit up to rounding: a few units in the last place of the largest."""
    model = make(name, dtype)
    rounding = 8 * torch.finfo(dtype).eps
    outputs = serve(model).generate(ids(*PROMPTS), GREEDY)
    for prompt, tokens in zip(PROMPTS, tokens_of(outputs), strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.float().gather(1, torch.tensor(tokens)[:, None])[:, 0]
        top, largest = logits.float().amax(1), logits.float().abs().amax(1)
        assert (top - chosen <= rounding * largest).all(), (top - chosen) / largest


def test_learned_positions_end_somewhere():
    """GPT-2 has no position after its last: one sentence, at the engine's start or a request's."""
    model = make("GPT-2")
    with pytest.raises(ValueError, match="max_model_len must be at most 64, not 65"):
        serve(model, max_model_len=65)
    llm = serve(model, num_blocks=16)
    with pytest.raises(ValueError, match="64 tokens; at most 63 fit"):
        llm.generate(ids([1] * 64), GREEDY)
    (output,) = llm.generate(ids([1] * 60), GREEDY)[0].outputs
    assert output.finish_reason == "length"
    assert output.token_ids == greedy_tokens(model, [1] * 60, 4)


def test_experts_under_another_name():
    """Aria's config says moe_topk of moe_num_experts."""
    model = random_model("AriaTextForCausalLM", moe_num_experts=4, moe_topk=2, head_dim=8)
    assert ModelWork.of(model, kv_bytes=1).share == 2 / 4
    outputs = serve(model).generate(ids(*PROMPTS), GREEDY)
    assert tokens_of(outputs) == expected(model)


def test_a_quantized_cache_with_a_window():
    """Codes of 8 bits are near enough that most tokens stay as they are."""
    model = make("Mistral")
    outputs = serve(model, kv_cache_dtype="int8", num_blocks=64).generate(ids(*PROMPTS), GREEDY)
    firsts = [greedy_tokens(model, prompt, 1) for prompt in PROMPTS]
    assert [tokens[:1] for tokens in tokens_of(outputs)] == firsts


def test_continuations_share_blocks_under_a_window():
    model = make("Mistral")
    params = SamplingParams(n=3, temperature=1.0, seed=1, max_tokens=MAX_TOKENS, ignore_eos=True)
    prompt = ids(PROMPTS[0])[0]
    together = serve(model, num_blocks=64).generate(prompt, params)[0].outputs
    alone = serve(model, num_blocks=64, attention_backend="reference").generate(prompt, params)
    assert [one.token_ids for one in together] == [one.token_ids for one in alone[0].outputs]
    assert len({one.token_ids for one in together}) == 3
    assert len(PROMPTS[0]) > WINDOW
