"""Quantized keys and values: bounded error, scales that travel with their block, exact bytes."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmserve_lab.kv_cache import KVShape, PagedKVCache, QuantizedKVCache, make_kv_cache
from llmserve_lab.kv_cache.quantization import (
    Grid,
    dequantize,
    grid_between,
    largest_code,
    pack,
    packed_length,
    quantize,
    unpack,
)

CPU = torch.device("cpu")
BLOCK_SIZES = [1, 4, 8, 16, 32, 64, 128]
HALF_ROUNDING = 2.0**-10  # of float16, relative, for scale and offset together
SMALLEST_HALF = 2**-24  # the steps of float16 near zero, and so of a scale
bits_of_codes = pytest.mark.parametrize("bits", [8, 4])


def poisoned(shape, num_blocks, block_size, bits, dtype=torch.float32):
    """A cache in which whatever was never written is NaN, the null block excepted."""
    cache = QuantizedKVCache(shape, num_blocks, block_size, dtype, CPU, bits)
    for part in cache.by_block():
        part[:num_blocks] = 255 if part.dtype is torch.uint8 else float("nan")
    return cache


@bits_of_codes
@given(st.integers(1, 9), st.integers(0, 1000))
def test_packing_loses_nothing(bits, length, seed):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, (2, 3, length), dtype=torch.uint8, generator=generator)
    packed = pack(codes, bits)
    assert packed.shape[-1] == packed_length(length, bits) == -(-length * bits // 8)
    assert torch.equal(unpack(packed, length, bits), codes)


def test_the_first_code_lies_in_the_lowest_bits():
    codes = torch.tensor([0x1, 0x2, 0xF], dtype=torch.uint8)
    assert pack(codes, 4).tolist() == [0x21, 0x0F]


@bits_of_codes
@given(low=st.floats(-1e4, 1e4), width=st.floats(0, 1e3), seed=st.integers(0, 100))
@example(low=0.0, width=1e-4, seed=0)  # a scale among the last few numbers of float16
def test_the_error_is_at_most_half_a_step(bits, low, width, seed):
    values = low + width * torch.rand(64, generator=torch.Generator().manual_seed(seed))
    grid = grid_between(*values.aminmax(), bits)
    error = (dequantize(quantize(values, grid, bits), grid) - values).abs().max()
    step = width / largest_code(bits)
    rounded_scale = largest_code(bits) * SMALLEST_HALF / 2
    assert error <= step / 2 + HALF_ROUNDING * values.abs().max() + rounded_scale + 1e-6


@bits_of_codes
def test_equal_values_and_huge_ones(bits):
    for number in (0.0, 3.0, -1e-9, 6e4, -6e4):
        values = torch.full((4,), number)
        grid = grid_between(*values.aminmax(), bits)
        assert torch.allclose(dequantize(quantize(values, grid, bits), grid), values, rtol=1e-3)
    grid = grid_between(torch.tensor(-1e30), torch.tensor(1e30), bits)
    assert all(part.isfinite() for part in grid)


def test_keys_have_a_grid_per_channel_and_values_one_per_token():
    """A channel of large keys spoils no other channel; a token of large values no other token."""
    shape = KVShape(1, 1, 8)
    cache = poisoned(shape, 2, 4, bits=8)
    small, generator = 0.01, torch.Generator().manual_seed(0)
    keys = small * torch.randn(4, 1, 8, generator=generator)
    values = small * torch.randn(4, 1, 8, generator=generator)
    keys[:, 0, 3] += 100
    values[2] += 100 * torch.randn(1, 8, generator=generator)
    cache.write(0, torch.arange(4, 8), keys, values)
    read_keys, read_values = cache.read(0, torch.arange(4, 8))
    other_channels = [c for c in range(8) if c != 3]
    assert (read_keys - keys)[:, 0, other_channels].abs().max() < small / 50
    assert (read_values - values)[[0, 1, 3]].abs().max() < small / 50
    assert cache.keys[0].grid.scale.shape == (3, 1, 1, 8)
    assert cache.values[0].grid.scale.shape == (3, 4, 1, 1)


def worst_key_error(parts, size, bits):
    """Half a step, and half a step more for each widening of a channel's grid."""
    keys = torch.cat(parts)
    ends = torch.tensor([len(part) for part in parts]).cumsum(0).tolist()
    bound = torch.zeros_like(keys)
    for start in range(0, len(keys), size):
        block, step = keys[start : start + size], torch.zeros_like(keys[0])
        for end in [e - start for e in ends if e > start]:
            low, high = block[:end].aminmax(dim=0)
            wider = (high - low) / largest_code(bits)
            bound[start : start + size] += torch.where((wider > step) | (end == 1), wider / 2, 0)
            step = wider
    return bound + HALF_ROUNDING * len(parts) * keys.abs().amax()


@bits_of_codes
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@settings(max_examples=15)
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    bias=st.sampled_from([0.0, 30.0]),
    seed=st.integers(0, 1000),
)
def test_the_error_of_any_way_to_write_is_bounded(bits, block_size, counts, bias, seed):
    """Two sequences grow side by side, by chunks of any length, in scattered blocks."""
    generator = torch.Generator().manual_seed(seed)
    shape, total = KVShape(2, 2, 5), sum(counts)
    per_sequence = -(-total // block_size)
    cache = poisoned(shape, 2 * per_sequence, block_size, bits)
    order = torch.randperm(2 * per_sequence, generator=generator)
    tables = order.view(2, per_sequence)
    offsets = torch.arange(per_sequence * block_size) % block_size
    slots = tables.repeat_interleave(block_size, 1) * block_size + offsets
    channel_bias = bias * torch.randn(2, 5, generator=generator)
    written, start = ([], []), 0
    for count in counts:
        new = torch.randn(2, 2, count, 2, 5, generator=generator)  # keys, values of each sequence
        new[0] += channel_bias
        part = slots[:, start : start + count]
        cache.write(1, part.flatten(), new[0].flatten(0, 1), new[1].flatten(0, 1))
        for index in range(2):
            written[index].append(new[:, index])
        start += count
    for index in range(2):
        keys, values = cache.read(1, slots[index, :total])
        true_keys, true_values = (torch.cat([w[i] for w in written[index]]) for i in range(2))
        bound = worst_key_error([w[0] for w in written[index]], block_size, bits)
        assert ((keys - true_keys).abs() <= bound).all()
        low, high = true_values.aminmax(dim=-1, keepdim=True)
        bound = (high - low) / largest_code(bits) / 2 + HALF_ROUNDING * true_values.abs().amax()
        assert ((values - true_values).abs() <= bound).all()


@bits_of_codes
def test_a_grid_that_holds_the_new_keys_leaves_the_old_codes_as_they_are(bits):
    """No drift: tokens within the range so far change nothing that was stored."""
    shape = KVShape(1, 1, 4)
    cache = poisoned(shape, 1, 16, bits)
    keys = torch.tensor([[-3.0, 100.0, 0.5, -1e-3], [5.0, 101.0, 0.5, 1e-3]])[:, None]
    cache.write(0, torch.tensor([0, 1]), keys, keys)
    before, _ = cache.read(0, torch.tensor([0, 1]))
    for offset in range(2, 16):
        cache.write(0, torch.tensor([offset]), keys.mean(0, keepdim=True), keys[:1])
    assert torch.equal(cache.read(0, torch.tensor([0, 1]))[0], before)


@bits_of_codes
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_bytes_are_what_the_shape_says(bits, block_size):
    for dim in (64, 5):
        shape = KVShape(3, 2, dim)
        cache = QuantizedKVCache(shape, 4, block_size, torch.float32, CPU, bits)
        per_block = shape.block_bytes(block_size, 4, f"int{bits}")
        assert cache.num_bytes == 5 * per_block  # the null block included
    codes = 2 * block_size * packed_length(5, bits)
    assert per_block == 3 * 2 * (codes + (5 + block_size) * 2 * 2)


def test_what_is_saved_on_a_model_of_usual_size():
    """Llama 3.1 8B in blocks of 16 and 32 tokens: bfloat16 to int8 and int4."""
    shape = KVShape(32, 8, 128)
    for block_size, wanted in ((16, (1.75, 3.0)), (32, (1.85, 3.3))):
        plain = shape.block_bytes(block_size, 2)
        assert plain == block_size * 128 * 1024
        for name, factor in zip(("int8", "int4"), wanted, strict=True):
            assert plain / shape.block_bytes(block_size, 2, name) > factor


@bits_of_codes
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_scales_travel_with_their_block(bits, block_size):
    shape = KVShape(2, 3, 6)
    cache = poisoned(shape, 6, block_size, bits)
    slots = torch.arange(2 * block_size)
    for layer in range(2):
        keys, values = torch.randn(2, 2 * block_size, 3, 6)
        cache.write(layer, slots, 1 + keys, values * 7)
    wanted = [cache.read(layer, slots) for layer in range(2)]
    content = cache.read_blocks([0, 1])
    cache.copy_blocks([(0, 4), (1, 2)])
    for part in cache.by_block():
        part[:2] = 0
    cache.write_blocks([5, 3], content)
    for tables in ([4, 2], [5, 3]):
        moved = torch.cat([torch.arange(b * block_size, (b + 1) * block_size) for b in tables])
        for layer in range(2):
            for got, was in zip(cache.read(layer, moved), wanted[layer], strict=True):
                assert torch.equal(got, was)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_models_dtype_comes_back(dtype):
    cache = poisoned(KVShape(1, 1, 4), 2, 4, 8, dtype)
    keys = torch.randn(3, 1, 4).to(dtype)
    cache.write(0, torch.arange(3), keys, keys)
    for slots in (slice(0, 3), torch.arange(3)):
        read_keys, read_values = cache.read(0, slots)
        assert read_keys.dtype is read_values.dtype is dtype
        assert torch.allclose(read_keys.float(), keys.float(), atol=0.05)
    assert cache.read(0, torch.tensor([[0, cache.null_slot]]))[0].shape == (1, 2, 1, 4)


def test_the_null_block_reads_as_zero():
    cache = poisoned(KVShape(1, 2, 4), 2, 4, 4)
    keys, values = cache.read(0, torch.full((3,), cache.null_slot))
    assert keys.count_nonzero() == values.count_nonzero() == 0


def test_a_cache_by_name():
    shape = KVShape(1, 1, 4)
    made = {
        name: make_kv_cache(name, shape, 2, 4, torch.float32, CPU)
        for name in ("auto", "int8", "int4")
    }
    assert isinstance(made["auto"], PagedKVCache)
    assert [made[name].bits for name in ("int8", "int4")] == [8, 4]
    with pytest.raises(ValueError, match="must be one of 'auto', 'int8', 'int4', not 'int2'"):
        make_kv_cache("int2", shape, 2, 4, torch.float32, CPU)


def test_a_grid_names_its_largest_value():
    grid = Grid(torch.tensor(0.5).half(), torch.tensor(-1.0).half())
    assert grid.top(4) == -1 + 15 * 0.5
