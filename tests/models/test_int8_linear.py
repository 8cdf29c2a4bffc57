"""The 8-bit linear layer: exact in its integers, and as far from float as its codes are wide."""

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.models import loops
from llmserve_lab.models.corpus import held_out_sample
from llmserve_lab.models.evaluate import score
from llmserve_lab.models.int8_linear import (
    Int8Linear,
    integer_product,
    linears_to_int8,
    quantized,
)
from llmserve_lab.models.load import LoadedModel, load
from tests.conftest import character_tokenizer
from tests.models.families import tiny_model

PREPARE = loops.prepare_int8.__wrapped__
LOOP, ALL_TORCH, INTEGERS, INTEGERS_IN_LOOPS = WAYS = (
    "loops of our own", "torch in float32", "torch in integers", "torch in integers, our own loops",
)  # fmt: skip


@pytest.fixture(scope="module", params=WAYS)
def way(request):
    """Each way to compute a layer on a CPU, whatever this one would take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "has_int8_products", lambda: request.param.startswith(INTEGERS))
        patch.setattr(loops, "prepare_int8", lambda: "loops" in request.param)
        patch.setattr(loops, "MAX_THREADS", 10**6)
        yield request.param


SIZES = st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 40))


def layer_of(inputs, outputs, bias=True, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Linear(inputs, outputs, bias=bias)


@settings(max_examples=40)
@given(sizes=SIZES, seed=st.integers(0, 99))
def test_the_integer_product_is_exact(way, sizes, seed):
    rows, width, outputs = sizes
    random = torch.Generator().manual_seed(seed)
    a, b = (
        torch.randint(-127, 128, (n, width), dtype=torch.int8, generator=random)
        for n in (rows, outputs)
    )
    product = integer_product(a, b)
    assert product.dtype is torch.int32
    assert (product.numpy() == a.numpy().astype(int) @ b.numpy().astype(int).T).all()


def test_the_integer_product_holds_the_largest_sums(way):
    """16,384 products of 127 x 127: 28 bits, far more than a float32 keeps exactly."""
    codes = torch.full((2, 2**14), 127, dtype=torch.int8)
    assert integer_product(codes, codes).tolist() == [[2**14 * 127**2] * 2] * 2


@settings(max_examples=40)
@given(sizes=SIZES, bias=st.booleans(), seed=st.integers(0, 99))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_is_its_integer_reference(way, dtype, sizes, bias, seed):
    """Codes, integer sums and scales written out in NumPy, bit for bit."""
    rows, width, outputs = sizes
    layer = layer_of(width, outputs, bias, seed).to(dtype)
    inputs = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).to(dtype)
    found = Int8Linear.of(layer)(inputs)
    (x, x_scale), (w, w_scale) = written_out(inputs), written_out(layer.weight.detach())
    sums = (x.astype(int) @ w.astype(int).T).astype(numpy.float32)
    wanted = torch.from_numpy(sums * x_scale * w_scale.T)
    wanted = wanted + layer.bias.detach().float() if bias else wanted
    assert found.dtype is dtype
    assert torch.equal(found, wanted.to(dtype))


def written_out(rows):
    rows = rows.float().numpy()
    largest = numpy.abs(rows).max(1, keepdims=True)
    scale = numpy.maximum(largest, numpy.float32(1e-30)) / numpy.float32(127)
    return numpy.rint(rows / scale).astype(numpy.int8), scale


@settings(max_examples=60)
@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 50)),
    power=st.integers(-30, 30),
    seed=st.integers(0, 99),
)
def test_codes_are_the_nearest(sizes, power, seed):
    rows = torch.randn(sizes, generator=torch.Generator().manual_seed(seed)) * 2.0**power
    codes, scale = quantized(rows)
    assert codes.abs().max() == 127
    assert ((codes * scale - rows).abs() <= 0.5001 * scale).all()


def test_rows_are_apart(way):
    """An outlier in one token costs the others nothing; a row of zeros stays zero."""
    layer = Int8Linear.of(layer_of(16, 8, bias=False))
    rows = torch.randn(4, 16)
    alone = torch.cat([layer(row[None]) for row in rows])
    rows_with = torch.cat([rows, rows[:1] * 1e6, torch.zeros(1, 16)])
    together = layer(rows_with)
    assert torch.equal(together[:4], alone)
    assert not together[5].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [5, 64, 2100])
def test_a_row_is_the_same_alone_and_in_any_batch(way, dtype, width):
    """Bit by bit, though a batch may be computed in another way than a row."""
    layer = Int8Linear.of(layer_of(width, 23).to(dtype))
    rows = torch.randn(40, width, generator=torch.Generator().manual_seed(1)).to(dtype)
    together = layer(rows)
    for count in (1, 2, 4, 7, 16, 17):
        parts = torch.cat([layer(part) for part in rows.split(count)])
        assert torch.equal(parts, together)


def test_few_rows_go_through_our_loop(way, monkeypatch):
    calls, whole = [], loops.int8_linear
    monkeypatch.setattr(
        loops, "int8_linear", lambda *args: calls.append(len(args[0])) or whole(*args)
    )
    layer = Int8Linear.of(layer_of(16, 8))
    for rows in (1, 16, 17):
        layer(torch.randn(rows, 16))
    assert calls == ([1, 16] if way == LOOP else [])


def test_no_loop_where_there_is_no_compiler(monkeypatch):
    monkeypatch.setattr(loops, "find_spec", lambda name: None)
    assert not PREPARE()


def test_the_ways_give_the_same_bits():
    rows, layer = torch.randn(20, 33) * torch.logspace(-3, 3, 20)[:, None], layer_of(33, 17)
    codes, scale = quantized(rows)
    ours, our_scale = loops.int8_codes(rows)
    assert torch.equal(codes, ours) and torch.equal(scale[:, 0], our_scale)
    sums = integer_product(codes, Int8Linear.of(layer).weight)
    weights = torch.rand(17)
    found = loops.scaled(sums, our_scale, weights, layer.bias)
    assert torch.equal(found, (sums * scale).mul_(weights) + layer.bias)


def test_an_input_with_a_gradient_is_read_like_any_other():
    layer, rows = Int8Linear.of(layer_of(16, 8)), torch.randn(3, 16)
    assert torch.equal(layer(rows.clone().requires_grad_()).detach(), layer(rows))


def test_what_is_not_finite_shows(way):
    rows = torch.ones(3, 16)
    rows[0, 3], rows[1, 3] = float("nan"), float("inf")
    outputs = Int8Linear.of(layer_of(16, 8))(rows)
    assert not outputs[:2].isfinite().any()
    assert outputs[2].isfinite().all()


@pytest.mark.parametrize("shape", [(3, 16), (2, 3, 16), (16,)])
def test_any_leading_shape(way, shape):
    layer, inputs = Int8Linear.of(layer_of(16, 8)), torch.randn(shape)
    assert torch.equal(layer(inputs), layer(inputs.view(-1, 16)).view(*shape[:-1], 8))


@pytest.mark.parametrize("name", ["llama", "llama_biased", "qwen2", "qwen3"])
@pytest.mark.parametrize("rows", [1, 12])
def test_the_engine_serves_a_model_in_int8(name, rows):
    """Its fused layers give what transformers' modules give with the same 8-bit layers."""
    model = tiny_model(name)
    assert linears_to_int8(model) == 2 * 7
    loaded = LoadedModel("a test", model, character_tokenizer(), "a test")
    own, plain = LLM(loaded, num_blocks=99), LLM(loaded, num_blocks=99)
    plain._engine.runner.forward.decoder = lambda: None
    decoder = own._engine.runner.forward.decoder()
    assert decoder is not None
    assert decoder.layers[0].qkv.weight.dtype is torch.int8
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=0)
    prompts = [{"prompt_token_ids": list(range(1, 4 + row))} for row in range(rows)]
    found, wanted = (
        [likeliest(output) for output in llm.generate(prompts, params)] for llm in (own, plain)
    )
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), atol=0.05, rtol=0.05)
    storages = [parameter.untyped_storage() for parameter in model.parameters()]
    memory = {storage.data_ptr(): storage.nbytes() for storage in storages}
    assert sum(memory.values()) == sum(p.nbytes for p in model.parameters())


def likeliest(output):
    """The logprob of the only token, which is the greedy one."""
    (entry,) = output.outputs[0].logprobs
    return next(iter(entry.values())).logprob


def test_the_bundled_model_in_int8_predicts_almost_as_well():
    texts = [file.text[:3000] for file in held_out_sample()[:3]]
    exact, narrow = load("lab-target"), load("lab-target", linear="int8")
    bits = [score(m.model, m.tokenizer, texts).bits_per_byte for m in (exact, narrow)]
    assert bits[0] != bits[1]
    assert abs(bits[1] - bits[0]) < 0.01 * bits[0]
    weights = [sum(p.nbytes for p in m.model.parameters()) for m in (exact, narrow)]
    assert weights[1] < 0.5 * weights[0]


def test_a_name_that_is_none():
    with pytest.raises(ValueError, match='linear must be "auto" or "int8", not \'int4\''):
        load("lab-target", linear="int4")


def test_a_model_without_linear_layers_is_refused():
    with pytest.raises(ValueError, match=r"GPT2LMHeadModel has no torch\.nn\.Linear"):
        linears_to_int8(tiny_model("gpt2", num_key_value_heads=4))
