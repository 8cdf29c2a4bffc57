"""What the flash backend hands to torch's varlen_attn, which only a GPU can run. A stand-in with
its signature holds it to what torch's code demands, and computes it on the CPU."""

import inspect

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn

from llmserve_lab import SamplingParams
from llmserve_lab.attention import backend, flash
from tests.attention.dense import PagedCase, dense
from tests.engine.reference import ids, tokens_of

pytestmark = pytest.mark.skipif(
    backend._release(torch.__version__) < backend.FLASH_TORCH, reason="needs torch 2.13"
)
PAGE = 256
CASES = {
    "decode": [(300, 1), (5, 1), (255, 1), (256, 1)],
    "prefill": [(0, 40), (300, 20), (256, 2)],
    "mixed": [(300, 1), (0, 30), (520, 3), (0, 1)],
}


def stand_in(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux=None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    num_splits: int | None = None,
):
    """Demands what FlashAttention-2 in torch 2.13 demands (its messages in libtorch_cuda.so)."""
    batch, (left, right) = len(cu_seq_q) - 1, window_size
    for tensor in (cu_seq_q, cu_seq_k, seqused_k, block_table):
        assert tensor.dtype == torch.int32 and tensor.is_contiguous()
    assert key.shape == value.shape and key.shape[1] % PAGE == 0
    assert len(cu_seq_k) == batch + 1 and len(seqused_k) == batch == len(block_table)
    assert all(tensor.stride(-1) == 1 for tensor in (query, key, value, block_table))
    assert num_splits == 1  # pytorch/pytorch issue 194167
    assert enable_gqa == (query.shape[1] != key.shape[2])
    counts = cu_seq_q.diff()
    assert max_q == counts.max() and max_k == seqused_k.max()
    assert right == 0 or (right == -1 and max_q == 1)  # what is no mask at all is causal for one
    output = torch.empty_like(query)
    for index in range(batch):
        rows = slice(cu_seq_q[index], cu_seq_q[index + 1])
        used = seqused_k[index]
        keys, values = (pool[block_table[index]].flatten(0, 1)[:used] for pool in (key, value))
        start = int(used - counts[index])
        window = None if left == -1 else left + 1
        output[rows] = dense(query[rows], keys, values, start, scale, window).to(query.dtype)
    return output


@pytest.fixture
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(flash, "varlen_attn", stand_in)


def test_the_stand_in_has_torchs_signature():
    def shape(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert shape(stand_in) == shape(varlen_attn)


@pytest.mark.parametrize("segments", CASES.values(), ids=CASES)
@pytest.mark.parametrize("heads", [(4, 4), (6, 2)])
@pytest.mark.parametrize("window", [None, 1, 100, 400])
def test_its_arguments_mean_the_batch(segments, heads, window, on_a_cpu):
    case = PagedCase(segments, heads, 64, PAGE, torch.float16)
    output = case.run(flash.paged_attention, window=window)
    assert (output.double() - case.wanted(window=window)).abs().max() < 1e-3


def test_the_arguments_in_full():
    batch = PagedCase([(300, 1), (0, 3)], (2, 1), 8, PAGE, torch.float16).batch()
    made = batch.once(flash.Arguments.of)
    assert made.query_ends.tolist() == [0, 1, 4]
    assert made.key_ends.tolist() == [0, 512, 1024]
    assert made.contexts.tolist() == [301, 3]
    null_block = batch.cache.null_slot // PAGE
    tables = [segment.block_table for segment in batch.segments]
    assert made.tables.tolist() == [tables[0], [*tables[1], null_block]]
    assert (made.max_q, made.max_k) == (3, 301)
    assert batch.once(flash.Arguments.of) is made  # for all layers


def test_the_engine_serves_the_same_greedy_tokens(make_llm, on_a_cpu):
    prompts = ids([1, 2, 3], [9] * 12, [5])
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    settings = {"block_size": PAGE, "num_blocks": 5, "max_num_batched_tokens": 7}
    wanted, found = (make_llm(attention_backend="reference", **settings) for _ in range(2))
    found._engine.runner.attention = flash.paged_attention
    assert tokens_of(found.generate(prompts, params)) == tokens_of(wanted.generate(prompts, params))
