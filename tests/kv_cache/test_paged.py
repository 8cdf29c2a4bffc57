"""The cache's tensors: shapes, slots, bytes."""

import pytest
import torch
from transformers import FalconConfig, LlamaConfig

from llmserve_lab.kv_cache import KVShape, PagedKVCache, slots_of

CPU = torch.device("cpu")


def test_the_shape_is_read_from_the_config():
    grouped = LlamaConfig(num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
                          hidden_size=64)  # fmt: skip
    assert KVShape.of(grouped) == KVShape(3, 2, 8)
    wide = LlamaConfig(num_hidden_layers=1, num_attention_heads=4, hidden_size=64, head_dim=32)
    assert KVShape.of(wide) == KVShape(1, 4, 32)


@pytest.mark.parametrize(
    ("settings", "num_kv_heads"),
    [
        ({}, 1),
        ({"multi_query": False}, 8),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2),
        ({"new_decoder_architecture": True}, 8),
    ],
)
def test_falcon_names_its_kv_heads_otherwise(settings, num_kv_heads):
    config = FalconConfig(num_attention_heads=8, hidden_size=64, num_hidden_layers=2, **settings)
    assert KVShape.of(config) == KVShape(2, num_kv_heads, 8)


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


DTYPES = [torch.float32, torch.bfloat16, torch.float16]
BLOCK_SIZES = [1, 4, 8, 16, 32, 64, 128]


def filled(block_size, dtype, num_blocks=6):
    """A cache of random content, the null block excepted."""
    cache = PagedKVCache(KVShape(2, 3, 4), num_blocks, block_size, dtype, CPU)
    for tensor in (*cache.keys, *cache.values):
        tensor[: cache.null_slot] = torch.randn(cache.null_slot, 3, 4).to(dtype)
    return cache


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_blocks_move_to_host_and_back_exactly(block_size, dtype):
    cache = filled(block_size, dtype)
    before = [part.clone() for part in cache.by_block()]
    content = cache.read_blocks([4, 0])
    for tensor in (*cache.keys, *cache.values):
        tensor.fill_(float("nan"))  # what was read must not depend on the cache any more
    cache.write_blocks([1, 2], content)
    for part, old in zip(cache.by_block(), before, strict=True):
        assert torch.equal(part[[1, 2]], old[[4, 0]])
        assert part[[0, 3, 4, 5]].isnan().all()


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_blocks_are_copied_in_order_and_others_left_alone(block_size):
    cache = filled(block_size, torch.float32)
    before = [part.clone() for part in cache.by_block()]
    cache.copy_blocks([(0, 3), (5, 0), (0, 4)])  # a copy of a copy is the copied content
    for part, old in zip(cache.by_block(), before, strict=True):
        assert torch.equal(part[:6], old[[5, 1, 2, 0, 5, 5]])
        assert part[6].count_nonzero() == 0


def test_read_takes_slots_of_any_shape_and_slices_in_place():
    cache = filled(4, torch.float32)
    keys, values = cache.read(1, torch.tensor([[3, 7], [0, 9]]))
    assert keys.shape == values.shape == (2, 2, 3, 4)
    assert torch.equal(keys[1, 1], cache.keys[1][9])
    keys, values = cache.read(0, slice(2, 6))
    assert torch.equal(values, cache.values[0][2:6])
    assert keys.data_ptr() == cache.keys[0][2].data_ptr()
