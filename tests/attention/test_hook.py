"""A model attends through the cache within `paged`, and as before outside."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from llmserve_lab.attention import BatchMetadata, Segment, paged, reference
from llmserve_lab.attention.options import UnsupportedAttentionError, read_options
from llmserve_lab.kv_cache import KVShape, PagedKVCache
from tests.conftest import tiny_llama

IDS = torch.tensor([[1, 2, 3]])


def paging(model):
    """`paged` over three tokens of one request."""
    device = torch.device("cpu")
    cache = PagedKVCache(KVShape.of(model.config), 1, 4, torch.float32, device)
    batch = BatchMetadata(cache, [Segment(0, 0, 3, [0])], device)
    return paged(model, batch, reference.paged_attention)


@pytest.mark.parametrize("before", ["sdpa", "eager"])
def test_the_model_is_restored(before):
    model = tiny_llama()
    model.set_attn_implementation(before)
    with paging(model):
        assert model.config._attn_implementation != before
    assert model.config._attn_implementation == before
    with pytest.raises(ZeroDivisionError), paging(model):
        _ = 1 / 0
    assert model.config._attn_implementation == before


def test_within_the_model_writes_to_the_cache_and_computes_the_same():
    model = tiny_llama()
    with torch.inference_mode():
        plain = model(IDS).logits
        with paging(model):
            assert torch.allclose(model(IDS, use_cache=False).logits, plain, atol=1e-4)
        assert torch.equal(model(IDS).logits, plain)


def test_another_thread_is_told_what_to_do():
    """Else it would read and write the cache of a batch that is not its own."""
    model = tiny_llama()
    with paging(model), ThreadPoolExecutor(1) as threads:
        asked = threads.submit(model, IDS)
        with pytest.raises(ValueError, match=r"call LLM\.generate"):
            asked.result()


def test_options_in_our_words():
    sinks = torch.zeros(2)
    options = {"sliding_window": 5, "softcap": None, "s_aux": sinks, "position_ids": IDS}
    assert read_options(options) == {"window": 5, "sinks": sinks}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"position_bias": IDS}, "position_bias"),
        ({"indices": IDS, "block_indices": IDS}, "block_indices, indices"),
        ({"is_causal": False}, "is_causal=False"),
    ],
)
def test_options_that_are_not_computed_are_named(options, word):
    with pytest.raises(UnsupportedAttentionError, match=word):
        read_options(options)


def test_dropout_is_refused():
    with pytest.raises(UnsupportedAttentionError, match=r"call model\.eval\(\)"):
        read_options({}, dropout=0.1)
