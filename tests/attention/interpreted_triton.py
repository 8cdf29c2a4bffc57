"""The Triton kernels on a CPU, in Triton's interpreter. It is chosen when they are imported, so
test_triton.py runs this in a process of its own."""

import json
import sys

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from benchmarks import gpu_check
from llmserve_lab import SamplingParams
from llmserve_lab.attention import reference, triton
from llmserve_lab.engine import cuda_graphs
from tests.attention.dense import PagedCase
from tests.engine.reference import ids, tokens_of

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3}
CAPPED = 1e-5  # the kernels' tanh is exact to float32's step at 1, also near 0
HEADS = [(4, 4), (4, 2), (8, 1), (6, 2), (14, 2)]
DECODE = st.tuples(st.integers(0, 70), st.just(1))  # tokens in the past, new tokens
PREFILL = st.tuples(st.integers(0, 40), st.integers(2, 20))
MIXED = [(40, 1), (0, 9), (0, 1), (17, 1), (30, 5)]


@pytest.fixture
def many_splits(monkeypatch):
    """Contexts of a few dozen tokens are split as those of thousands are."""
    monkeypatch.setattr(triton, "FEWEST_KEYS", 16)


def assert_close(case, **options):
    output = case.run(triton.paged_attention, **options)
    assert output.dtype is case.dtype
    wanted = case.wanted(**options)
    tolerance = max(TOLERANCE[case.dtype], CAPPED if options.get("softcap") else 0)
    assert (output.double() - wanted).abs().max() < tolerance


@settings(max_examples=25, phases=[Phase.reuse, Phase.generate])
@given(
    segments=st.lists(DECODE | PREFILL, min_size=1, max_size=4),
    heads=st.sampled_from(HEADS),
    dim=st.sampled_from([8, 32, 64, 80, 128]),
    block_size=st.sampled_from([1, 3, 16, 32, 64]),
    dtype=st.sampled_from([torch.float32, torch.float16]),
    window=st.none() | st.integers(1, 50),
    softcap=st.none() | st.sampled_from([1.0, 20.0]),
    fewest_keys=st.sampled_from([16, 64, 256]),
    seed=st.integers(0, 1000),
)
def test_any_batch(segments, heads, dim, block_size, dtype, window, softcap, fewest_keys, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton, "FEWEST_KEYS", fewest_keys)
        case = PagedCase(segments, heads, dim, block_size, dtype, seed)
        assert_close(case, window=window, softcap=softcap)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("dim", [32, 64, 128])
@pytest.mark.parametrize("heads", [(4, 4), (8, 2)])
def test_it_equals_the_reference(heads, dim, dtype, many_splits):
    case, same = (PagedCase(MIXED, heads, dim, 16, dtype) for _ in range(2))
    same.cache.keys[0][same.cache.null_slot :] = same.cache.values[0][same.cache.null_slot :] = 0
    found = case.run(triton.paged_attention).float()
    assert (found - same.run(reference.paged_attention).float()).abs().max() < TOLERANCE[dtype]


def test_a_long_context_is_split_and_a_full_batch_is_not(monkeypatch):
    seen = []
    monkeypatch.setattr(triton, "merge", Recorded(triton.merge, seen))
    assert_close(PagedCase([(700, 1)], (2, 1), 32, 16, torch.float32))
    assert [launch["SPLITS"] for launch in seen] == [3]
    monkeypatch.setattr(triton, "PROGRAMS", 4)
    assert_close(PagedCase([(300, 1)] * 4, (2, 1), 32, 16, torch.float32))
    assert len(seen) == 1


@pytest.mark.parametrize("window", [1, 16, 17])
def test_what_lies_before_the_window_is_not_read(window, many_splits):
    """Except within a step of the kernel, where it is masked."""
    case = PagedCase([(200, 1), (170, 4)], (4, 2), 32, 16, torch.float32)
    wanted = case.wanted(window=window)
    for segment in case.segments:
        for block in segment.block_table[:6]:
            case.cache.keys[0][block * 16 : block * 16 + 16] = float("nan")
            case.cache.values[0][block * 16 : block * 16 + 16] = float("nan")
    assert (case.run(triton.paged_attention, window=window) - wanted).abs().max() < 2e-6


@pytest.mark.parametrize("window", [None, 5])
def test_tokens_of_one_tile_that_see_none_of_the_keys_of_a_step(window, many_splits):
    """Of 64 keys: the first tokens' are all behind, or the last tokens' window is past them."""
    case = PagedCase([(100, 40)], (4, 2), 32, 16, torch.float32)
    assert_close(case, window=window)


@pytest.mark.parametrize("dim", [32, 128])
def test_where_there_are_no_tensor_cores(dim, monkeypatch):
    """As on a T4: smaller steps for decode, and prefill in plain torch."""
    monkeypatch.setattr(triton, "has_tensor_cores", lambda queries: False)
    case = PagedCase(MIXED, (4, 2), dim, 16, torch.float16)
    case.cache.keys[0][case.cache.null_slot :] = case.cache.values[0][case.cache.null_slot :] = 0
    assert_close(case, window=30)


def test_scores_that_differ_by_thousands():
    """Online softmax: a later key may outweigh all before it, or count for nothing."""
    rising = torch.linspace(1, 3000, 100)
    for scale in (rising, rising.flip(0)):
        case = PagedCase([(99, 1)], (2, 1), 32, 16, torch.float32)
        q, k, v, past = case.all[0]
        k[:] = q[past, :1] * scale[:, None, None]
        before = case.batch()
        table = case.segments[0].block_table
        slots = [table[place // 16] * 16 + place % 16 for place in range(past)]
        case.cache.write(0, before.slot_mapping.new_tensor(slots), k[:past], v[:past])
        assert_close(case)


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_the_engine_serves_the_same_greedy_tokens(make_llm, prefix_caching):
    """Prompts in chunks of 7 beside decodes, over NaN-filled blocks of two sizes."""
    prompts = ids([1, 2, 3], [9] * 12, list(range(20, 40)), [5])
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    settings = {"max_num_batched_tokens": 7, "enable_prefix_caching": prefix_caching}
    found = {
        (backend, block_size): tokens_of(
            make_llm(attention_backend=backend, block_size=block_size, **settings).generate(
                prompts, params
            )
        )
        for backend, block_size in [("reference", 4), ("triton", 4), ("triton", 16)]
    }
    assert len({str(tokens) for tokens in found.values()}) == 1, found
    assert len(set(found["triton", 16])) > 1


def test_blocks_that_the_same_step_writes(make_llm):
    """Of prompts that come together one computes what they share."""
    prompts = ids([9] * 9, [*[9] * 8, 4], [*[9] * 8, 4, 5, 6])
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    cold = tokens_of(make_llm(attention_backend="reference").generate(prompts, params))
    llm = make_llm(attention_backend="triton", enable_prefix_caching=True)
    outputs = llm.generate(prompts, params)
    assert tokens_of(outputs) == cold
    assert [output.metrics.num_hit_tokens for output in outputs] == [0, 8, 8]


def test_captured_decode_steps_launch_the_same_kernels(make_llm, monkeypatch):
    """Over buffers that hold more rows and longer tables than the batch; without CUDA's graphs."""
    monkeypatch.setattr(cuda_graphs, "CudaGraph", cuda_graphs.EagerGraph)
    settings = {"max_num_seqs": 4, "max_model_len": 40, "num_blocks": 32}
    captured = make_llm(cuda_graphs=True, attention_backend="triton", **settings)
    plain = make_llm(attention_backend="reference", **settings)
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    prompts = ids([1, 2, 3], [9] * 12, [5])
    found, wanted = (tokens_of(llm.generate(prompts, params)) for llm in (captured, plain))
    assert found == wanted


@pytest.fixture
def check(monkeypatch, tmp_path):
    """Runs benchmarks/gpu_check.py on two shapes: its exit code and its results."""
    file = tmp_path / "results.json"
    monkeypatch.setattr(gpu_check, "SMALL", [gpu_check.SMALL[1], gpu_check.SMALL[3]])
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--interpret", "--json", str(file)])
    return lambda: (gpu_check.main(), json.loads(file.read_text())["results"])


def test_the_gpu_check_runs_without_a_gpu(check, capsys):
    code, results = check()
    assert code == 0
    assert [row["dtype"] for row in results] == ["float32", "float16"] * 2 + ["float32"]
    assert {row["backend"] for row in results} == {"triton"}
    assert all(0 < row["error"] < 2e-3 for row in results[:-1])
    assert results[-1]["error"] == 0  # of greedy tokens
    assert capsys.readouterr().out.count(" ok") == len(results)


@pytest.mark.parametrize("wrong", [0.05, float("nan")])
def test_the_gpu_check_sees_a_wrong_kernel(check, wrong, monkeypatch, capsys):
    def off(layer, queries, cache, spans, scaling, output, *options):
        output[spans.rows] = wrong

    monkeypatch.setattr(triton, "attend_spans", off)
    monkeypatch.setattr(gpu_check, "engine_check", lambda *arguments: [])
    code, results = check()
    assert code == 1
    assert not any(row["ok"] for row in results)
    assert "WRONG" in capsys.readouterr().out


class Recorded:
    """A kernel that notes what it is launched with."""

    def __init__(self, kernel, launches):
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid):
        def launch(*tensors, **constants):
            self.launches.append(constants)
            return self.kernel[grid](*tensors, **constants)

        return launch
