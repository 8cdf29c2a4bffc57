"""The engine over a quantized KV cache: judged by perplexity and by the tokens it prefers."""

import math

import pytest
import torch

from llmserve_lab import LLM, SamplingParams, Scheduler, load
from llmserve_lab.engine.preemption import SwapToHost
from llmserve_lab.kv_cache import shape
from llmserve_lab.models.corpus import held_out_sample
from tests.engine.reference import ids, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = [list(range(start, start + length)) for start, length in ((1, 9), (20, 4), (30, 17))]
DTYPES = ["int8", "int4"]
BLOCK_SIZES = [1, 4, 8, 16, 32, 64, 128]


@pytest.fixture(scope="module")
def target():
    return load("lab-target", dtype="float32")


def scored(model, **options):
    """(perplexity, likeliest token at each position) of held-out text, read in chunks of 50."""
    text = "\n".join(file.text for file in held_out_sample()[:2])
    tokens = model.tokenizer(text[:4000])["input_ids"]
    windows = [tokens[start : start + 150] for start in (0, 150, 300)]
    llm = LLM(model, attention_backend="reference", max_num_batched_tokens=50, **options)
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    losses, likeliest = [], []
    for output in llm.generate(ids(*windows), params):
        for entry, token in zip(
            output.prompt_logprobs[1:], output.prompt_token_ids[1:], strict=True
        ):
            losses.append(-entry[token].logprob)
            likeliest.append(min(entry, key=lambda known: entry[known].rank))
    return math.exp(sum(losses) / len(losses)), likeliest


@pytest.fixture(scope="module")
def exact(target):
    return scored(target)


@pytest.mark.parametrize("block_size", [4, 16, 128])
@pytest.mark.parametrize(
    ("kv_cache_dtype", "loss", "agreement"), [("int8", 0.01, 0.97), ("int4", 0.1, 0.8)]
)
def test_perplexity_and_preferred_tokens(
    target, exact, kv_cache_dtype, loss, agreement, block_size
):
    perplexity, likeliest = scored(target, kv_cache_dtype=kv_cache_dtype, block_size=block_size)
    assert abs(perplexity / exact[0] - 1) < loss
    same = sum(a == b for a, b in zip(likeliest, exact[1], strict=True))
    assert same / len(likeliest) > agreement


def test_the_judge_notices_a_bad_cache(target, exact, monkeypatch):
    """With one bit per value the same model reads the same text much worse."""
    monkeypatch.setitem(shape.BITS, "int4", 1)
    perplexity, likeliest = scored(target, kv_cache_dtype="int4")
    assert perplexity / exact[0] - 1 > 0.1
    assert sum(a == b for a, b in zip(likeliest, exact[1], strict=True)) / len(likeliest) < 0.8


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("kv_cache_dtype", DTYPES)
def test_neighbours_blocks_and_stale_content_change_nothing(make_llm, kv_cache_dtype, block_size):
    """Alone in a fresh pool, together, and again in reused blocks: the same tokens."""
    options = {"kv_cache_dtype": kv_cache_dtype, "block_size": block_size, "num_blocks": 96}
    alone = [tokens_of(make_llm(**options).generate(ids(p), GREEDY))[0] for p in PROMPTS]
    llm = make_llm(**options)
    for _ in range(2):
        assert tokens_of(llm.generate(ids(*PROMPTS), GREEDY)) == alone
        assert tokens_of(llm.generate(ids(*PROMPTS[::-1]), GREEDY)) == alone[::-1]


@pytest.mark.parametrize("kv_cache_dtype", DTYPES)
def test_swapping_to_host_and_back_loses_nothing(make_llm, kv_cache_dtype):
    roomy = make_llm(kv_cache_dtype=kv_cache_dtype)
    llm = make_llm(
        kv_cache_dtype=kv_cache_dtype, num_blocks=9, scheduler=Scheduler(SwapToHost(num_blocks=20))
    )
    wanted = tokens_of(roomy.generate(ids(*PROMPTS), GREEDY))
    assert tokens_of(llm.generate(ids(*PROMPTS), GREEDY)) == wanted
    assert llm.scheduler.preemption.num_swapped_in > 0


@pytest.mark.parametrize("kv_cache_dtype", DTYPES)
def test_forks_copy_their_scales(make_llm, kv_cache_dtype):
    params = SamplingParams(n=3, seed=5, max_tokens=9, ignore_eos=True)
    outputs = make_llm(kv_cache_dtype=kv_cache_dtype).generate(ids(PROMPTS[0]), params)[0].outputs
    for index, output in enumerate(outputs):
        llm = make_llm(kv_cache_dtype=kv_cache_dtype)
        wanted = llm.generate(ids(PROMPTS[0]), params.continuation(index))
        assert (output.token_ids,) == tuple(tokens_of(wanted))


@pytest.mark.parametrize("kv_cache_dtype", DTYPES)
def test_a_cached_prefix_is_read_as_it_was_written(make_llm, kv_cache_dtype):
    llm = make_llm(kv_cache_dtype=kv_cache_dtype, enable_prefix_caching=True)
    first, second = (llm.generate(ids(PROMPTS[2]), GREEDY)[0] for _ in range(2))
    assert second.metrics.num_hit_tokens == 16
    assert first.outputs[0].token_ids == second.outputs[0].token_ids


@pytest.mark.parametrize("block_size", [1, 16, 128])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", *DTYPES])
def test_capacity_counts_the_bytes_that_are_there(make_llm, kv_cache_dtype, block_size):
    llm = make_llm(kv_cache_dtype=kv_cache_dtype, block_size=block_size)
    held = llm._engine.runner.cache.num_bytes
    assert held == (llm.capacity.num_blocks + 1) * llm.capacity.block_bytes


def test_the_same_memory_holds_more_tokens(make_llm):
    memory = 40 * 16 * 2 * 2 * 2 * 8 * 4  # 40 blocks of 16 tokens in float32
    blocks = [
        make_llm(kv_cache_dtype=name, block_size=16, num_blocks=None, kv_cache_memory_bytes=memory)
        .capacity.num_blocks
        for name in ("auto", *DTYPES)
    ]  # fmt: skip
    assert blocks[0] == 40
    assert blocks == sorted(set(blocks))


def test_what_cannot_be_is_refused(tiny):
    with pytest.raises(ValueError, match="kv_cache_dtype must be one of 'auto', 'int8', 'int4'"):
        LLM(tiny, kv_cache_dtype="fp8")
    with pytest.raises(ValueError, match="the KV cache is quantized"):
        LLM(tiny, kv_cache_dtype="int8", attention_backend="cpu")


@pytest.mark.parametrize("kv_cache_dtype", DTYPES)
def test_in_bfloat16(kv_cache_dtype, tiny):
    from copy import deepcopy

    from llmserve_lab.models.load import LoadedModel

    model = deepcopy(tiny.model).to(torch.bfloat16)
    loaded = LoadedModel("half", model, tiny.tokenizer, "a test")
    llm = LLM(loaded, kv_cache_dtype=kv_cache_dtype, num_blocks=8)
    assert len(llm.generate(ids(PROMPTS[0]), GREEDY)[0].outputs[0].token_ids) == 12
