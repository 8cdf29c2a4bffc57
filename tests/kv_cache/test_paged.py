"""The cache's tensors: shapes, slots, bytes."""

import torch
from transformers import LlamaConfig

from llmserve_lab.kv_cache import KVShape, PagedKVCache, slots_of

CPU = torch.device("cpu")


def test_the_shape_is_read_from_the_config():
    grouped = LlamaConfig(num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
                          hidden_size=64)  # fmt: skip
    assert KVShape.of(grouped) == KVShape(3, 2, 8)
    wide = LlamaConfig(num_hidden_layers=1, num_attention_heads=4, hidden_size=64, head_dim=32)
    assert KVShape.of(wide) == KVShape(1, 4, 32)


def test_bytes_per_token_of_a_known_model():
    """Llama 3.1 8B: 32 layers x 8 KV heads x 128, keys and values, 2 bytes: 128 KiB."""
    assert KVShape(32, 8, 128).bytes_per_token(2) == 128 * 1024


def test_slots_follow_the_block_table():
    assert slots_of([5, 2, 7], 0, 6, 2) == [10, 11, 4, 5, 14, 15]
    assert slots_of([5, 2, 7], 3, 5, 2) == [5, 14]
    assert slots_of([5], 1, 1, 2) == []


def test_what_is_written_is_read_at_its_slot():
    cache = PagedKVCache(KVShape(2, 3, 4), 5, 2, torch.float32, CPU)
    keys, values = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    cache.write(1, torch.tensor([7, 0]), keys, values)
    assert torch.equal(cache.keys[1][[7, 0]], keys)
    assert torch.equal(cache.values[1][[7, 0]], values)
    assert cache.keys[0].count_nonzero() == 0
    assert cache.keys[1].count_nonzero() == keys.numel()


def test_the_null_block_comes_on_top():
    cache = PagedKVCache(KVShape(2, 3, 4), 5, 2, torch.float16, CPU)
    assert cache.null_slot == 10
    assert cache.keys[0].shape == (12, 3, 4)
    assert cache.num_bytes == 12 * KVShape(2, 3, 4).bytes_per_token(2)
