"""Captured decode steps, with an eager stand-in for CUDA's graphs: padding, buffers and tokens."""

import random

import pytest
import torch

from llmserve_lab import SamplingParams
from llmserve_lab.engine import cuda_graphs
from llmserve_lab.engine.cuda_graphs import EagerGraph, batch_sizes
from llmserve_lab.engine.priority import PriorityScheduler
from tests.engine.reference import ids, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
ROWS = 12  # requests at once


class WatchedGraph(EagerGraph):
    """Notes each graph that is made, and each replay."""

    made: list
    replays: list

    def __init__(self, step, pool):
        super().__init__(step, pool)
        self.made.append((self.size, pool))

    @property
    def size(self):
        return self.step.args[0]

    def replay(self):
        self.replays.append(self.size)
        return super().replay()

    @staticmethod
    def new_pool():
        return object()


@pytest.fixture
def graphs(monkeypatch):
    """The class of graphs, in the place of CUDA's; the reference counts as one to capture."""
    kind = type("Watched", (WatchedGraph,), {"made": [], "replays": []})
    monkeypatch.setattr(cuda_graphs, "CudaGraph", kind)
    monkeypatch.setattr(cuda_graphs, "BACKENDS", ("reference", "triton"))
    return kind


@pytest.fixture
def make_pair(make_llm, graphs):
    """An engine with graphs and one without, otherwise alike."""

    def make(**settings):
        settings = {"attention_backend": "reference", "max_num_seqs": ROWS} | settings
        return make_llm(cuda_graphs=True, **settings), make_llm(**settings)

    return make


@pytest.fixture(scope="module")
def prompts():
    source = random.Random(1)
    return ids(*([source.randrange(1, 64) for _ in range(n)] for n in (1, 2, 3, 5, 8, 13, 21, 4)))


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [(1, [1]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (20, [1, 2, 4, 8, 16, 20])],
)
def test_batch_sizes(largest, sizes):
    assert batch_sizes(largest) == sizes
    assert batch_sizes(64) == [1, 2, 4, *range(8, 65, 8)]


def test_the_largest_is_captured_first_and_all_share_one_pool(make_pair, graphs):
    make_pair()
    assert [size for size, _ in graphs.made] == [12, 8, 4, 2, 1]
    assert len({id(pool) for _, pool in graphs.made}) == 1


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
@pytest.mark.parametrize("budget", [5, 2048])
def test_greedy_tokens_are_the_same(make_pair, graphs, prompts, block_size, budget):
    """Batches shrink as requests end; with a small budget few steps are decode alone."""
    settings = {"block_size": block_size, "num_blocks": 256 // block_size}
    captured, plain = make_pair(max_num_batched_tokens=budget, **settings)
    params = [SamplingParams(temperature=0, max_tokens=3 + n, ignore_eos=True) for n in range(8)]
    for _ in range(2):  # the second run finds its blocks in another order
        assert tokens_of(captured.generate(prompts, params)) == tokens_of(
            plain.generate(prompts, params)
        )
    assert set(graphs.replays) >= ({1, 2} if budget == 5 else {1, 2, 4, 8})


def test_sampling_forks_penalties_and_logprobs_are_the_same(make_pair, graphs, prompts):
    captured, plain = make_pair(enable_prefix_caching=True)
    params = [
        SamplingParams(temperature=0.8, seed=1, max_tokens=8, n=2, ignore_eos=True),
        SamplingParams(temperature=0, max_tokens=8, repetition_penalty=1.5, logprobs=2),
        SamplingParams(temperature=0, max_tokens=8, prompt_logprobs=1, ignore_eos=True),
    ]
    found, wanted = (
        [
            (part.token_ids, [round(x.logprob, 4) for d in part.logprobs or () for x in d.values()])
            for output in llm.generate(prompts[4:7], params)
            for part in output.outputs
        ]
        for llm in (captured, plain)
    )
    assert found == wanted
    assert graphs.replays


def test_preempted_requests_end_with_the_same_tokens(make_pair, graphs, prompts):
    captured, plain = make_pair(num_blocks=12, scheduler=None)
    found, wanted = (llm.generate(prompts, GREEDY) for llm in (captured, plain))
    assert tokens_of(found) == tokens_of(wanted)
    assert sum(output.metrics.num_preemptions for output in found) > 0
    assert graphs.replays


def test_a_captured_step_may_read_blocks_that_it_writes(make_pair, graphs):
    """Prompts of which one computes a prefix and the others go on from it, a token each."""
    captured, plain = make_pair(block_size=1, enable_prefix_caching=True)
    prompts = ids([7], [7, 8], [7, 8, 9])
    found, wanted = (llm.generate(prompts, GREEDY) for llm in (captured, plain))
    assert graphs.replays[0] == 4, "the first step was captured, for 3 rows and one that is empty"
    assert tokens_of(found) == tokens_of(wanted)
    assert [output.metrics.num_hit_tokens for output in found] == [0, 1, 2]


def test_another_scheduler_serves_through_them_too(make_llm, graphs, prompts):
    settings = {"attention_backend": "reference", "max_num_seqs": ROWS}
    found, wanted = (
        make_llm(scheduler=PriorityScheduler(), cuda_graphs=on, **settings) for on in (True, False)
    )
    assert tokens_of(found.generate(prompts, GREEDY)) == tokens_of(wanted.generate(prompts, GREEDY))


def test_padding_touches_no_block_of_the_pool(make_pair, prompts):
    """Three requests run in a graph of four: its last row writes to the dummy block alone."""
    captured, _ = make_pair(num_blocks=40)
    runner = captured._engine.runner
    blocks = runner.cache.by_block()
    assert len(blocks[0]) == 40 + 2  # the pool's, the dummy, the null block
    captured.generate(prompts[:3], GREEDY)
    written = blocks[0].isnan().flatten(1).logical_not().any(1)
    used = sum(-(-(length + 8) // 4) for length in (1, 2, 3))  # the last token is never written
    assert written[:40].sum() == used
    assert written[40] and not blocks[0][40, 1:].isfinite().any()  # one slot of it
    assert blocks[0][41].count_nonzero() == 0


def test_the_buffers_never_move_and_hold_the_greedy_tokens(make_pair, prompts):
    captured, _ = make_pair()
    held = captured._engine.runner.graphs.buffers
    addresses = [t.data_ptr() for t in (held.numbers, held.tables, held.next_tokens, held.rows)]
    seen = []
    for event in captured.stream(prompts[:3], GREEDY):
        seen.append(event.token_id)
        if event.index == 8 and len(seen) == 27:
            assert held.next_tokens[:3].tolist() == seen[-3:]
    assert len(seen) == 27
    tensors = (held.numbers, held.tables, held.next_tokens, held.rows)
    assert [t.data_ptr() for t in tensors] == addresses


def test_only_decode_steps_are_taken(make_pair, graphs, prompts):
    captured, _ = make_pair(max_num_batched_tokens=4)
    graphs.replays.clear()
    captured.add_request(prompts[6], GREEDY)  # 21 tokens, four at a time; then one alone
    for _ in range(5):
        captured.step()
    assert not graphs.replays
    captured.step()  # the prompt's last token is one, and is sampled after
    assert graphs.replays == [1]
    while captured.has_work:
        captured.step()
    assert len(graphs.replays) == 9


@pytest.mark.parametrize("scores", [None, 1])
def test_a_chunk_of_one_token_is_no_decode_step(make_pair, prompts, scores):
    """With room for two tokens, a prompt grows by one beside a request that decodes."""
    captured, plain = make_pair(max_num_batched_tokens=2)
    params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, prompt_logprobs=scores)
    both = [prompts[0], prompts[5]]
    found, wanted = (llm.generate(both, params) for llm in (captured, plain))
    assert tokens_of(found) == tokens_of(wanted)
    assert [len(output.prompt_logprobs or ()) for output in found] == (
        [1, 13] if scores else [0, 0]
    )


def test_what_cannot_be_captured_is_refused(make_llm):
    with pytest.raises(ValueError, match=r"needs a CUDA GPU and the triton .* reference on cpu"):
        make_llm(cuda_graphs=True, attention_backend="reference")
    with pytest.raises(ValueError, match="here it is cpu on cpu"):
        make_llm(cuda_graphs=True, attention_backend="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_cuda_there_is_no_graph():
    with pytest.raises((RuntimeError, AssertionError)):
        cuda_graphs.CudaGraph(lambda: torch.zeros(1), None)
