"""Totals of an engine on a clock that the test turns, counted by hand; and utilisation."""

import dataclasses

import pytest
import torch

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.engine.peak import BUDGET, FEWEST_RUNS, Peak, measure_peak
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.engine.work import ModelWork
from tests.conftest import tiny_llama
from tests.engine.reference import ids


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def timed(make_llm):
    """Each step takes 1 s to schedule, 7 s in the model, 2 s to sample and 10 s in all."""

    def make(**settings):
        clock = Clock()
        llm = make_llm(clock=clock, **settings)
        engine = llm._engine

        def slow(owner, name, seconds):
            function = getattr(owner, name)

            def later(*args):
                clock.now += seconds
                return function(*args)

            setattr(owner, name, later)

        slow(engine.scheduler, "schedule", 1)
        slow(engine.runner, "run", 7)
        slow(engine.sampler, "sample", 2)
        return llm

    return make


def params(count, **options):
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, **options)


def test_a_new_engine_has_done_nothing(make_llm):
    metrics = make_llm(num_blocks=64).metrics
    assert metrics.steps == metrics.seconds == metrics.generation_tokens == metrics.flops == 0
    assert metrics.prompt_tokens_per_second == metrics.generation_tokens_per_second == 0
    assert metrics.mean_batch_size == metrics.python_share == metrics.prefix_hit_rate == 0
    assert (metrics.kv_blocks, metrics.kv_use, metrics.peak_kv_use) == (64, 0, 0)


def test_tokens_batches_and_times(timed):
    llm = timed()
    llm.generate(["abc", "defgh"], [params(2), params(4)])
    metrics = llm.metrics
    assert metrics.steps == 4
    assert metrics.seconds == 40
    assert (metrics.prompt_tokens, metrics.generation_tokens) == (8, 6)
    assert metrics.prompt_tokens_per_second == 8 / 40
    assert metrics.generation_tokens_per_second == 6 / 40
    assert metrics.computed_tokens == 8 + 1 + 3
    assert (metrics.mean_batch_size, metrics.max_batch_size) == (6 / 4, 2)
    assert (metrics.finished, metrics.aborted, metrics.preemptions) == (2, 0, 0)
    assert (metrics.forward_seconds, metrics.sampling_seconds) == (28, 8)
    assert metrics.share_outside_forward == pytest.approx(12 / 40)
    assert metrics.python_share == pytest.approx(4 / 40)


def test_a_prompt_in_chunks_comes_in_once_when_it_is_read(timed):
    llm = timed(max_num_batched_tokens=4)
    llm.add_request("a" * 10, params(2))
    llm.step()
    assert (llm.metrics.prompt_tokens, llm.metrics.computed_tokens) == (0, 4)
    llm.step()
    llm.step()
    assert (llm.metrics.prompt_tokens, llm.metrics.computed_tokens) == (10, 10)
    assert llm.metrics.generation_tokens == 1
    llm.step()
    assert (llm.metrics.prompt_tokens, llm.metrics.computed_tokens) == (10, 11)


def test_memory_and_queue_now_and_at_most(timed):
    llm = timed(num_blocks=10, block_size=4, max_num_seqs=1)
    llm.add_request("abcde", params(5))
    llm.add_request("xyz", params(1))
    llm.step()
    metrics = llm.metrics
    assert (metrics.running, metrics.waiting, metrics.kv_blocks_used) == (1, 1, 2)
    while llm.has_work:
        llm.step()
    metrics = llm.metrics
    assert (metrics.running, metrics.waiting, metrics.kv_use) == (0, 0, 0)
    assert metrics.peak_kv_blocks_used == 3  # 5 + 4 tokens: the last output is never computed
    assert metrics.peak_kv_use == 0.3


def test_preemptions_compute_again_but_no_prompt_comes_in_twice(timed):
    llm = timed(num_blocks=3, block_size=4)
    outputs = llm.generate(["abcd", "wxyz"], params(6))
    metrics = llm.metrics
    assert metrics.preemptions == sum(o.metrics.num_preemptions for o in outputs) == 1
    assert (metrics.prompt_tokens, metrics.generation_tokens) == (8, 12)
    assert metrics.computed_tokens > 8 + 5 + 5
    assert metrics.peak_kv_use == 1


def test_hit_rate(timed):
    llm = timed(enable_prefix_caching=True, block_size=4)
    llm.generate("abcdefghi", params(1))
    assert llm.metrics.prefix_hit_rate == 0
    llm.generate("abcdefghi", params(1))
    metrics = llm.metrics
    assert (metrics.prefix_queries, metrics.prefix_hits) == (18, 8)
    assert metrics.prefix_hit_rate == 8 / 18
    assert (metrics.prompt_tokens, metrics.computed_tokens) == (18, 10)


def test_aborted_ones_are_counted_apart(timed):
    llm = timed()
    (name,) = llm.add_request("abc", params(5))
    llm.step()
    llm.abort(name)
    llm.step()
    llm.generate("x", params(1))
    assert (llm.metrics.finished, llm.metrics.aborted) == (1, 1)
    assert llm.metrics.steps == 2  # the one that only ended it ran nothing


def test_idle_time_is_no_step(timed):
    llm = timed()
    llm.generate("abc", params(2))
    llm._engine.clock.now += 1000
    llm.generate("abc", params(2))
    assert llm.metrics.seconds == 40


def test_a_snapshot_stays_and_cannot_be_changed(timed):
    llm = timed()
    before = llm.metrics
    llm.generate("abc", params(2))
    assert before.steps == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.steps = 5


def test_reset(timed):
    llm = timed(enable_prefix_caching=True, block_size=4)
    llm.generate("abcdefghi", params(3))
    llm.reset_metrics()
    assert llm.metrics == dataclasses.replace(
        llm.metrics, steps=0, seconds=0, generation_tokens=0, prefix_queries=0, finished=0,
        num_bytes=0, peak_kv_blocks_used=0,
    )  # fmt: skip
    llm.generate("abcdefghi", params(1))
    assert (llm.metrics.steps, llm.metrics.prefix_hit_rate) == (1, 8 / 9)


def items(*shapes):
    """(start, tokens, known tokens) each."""
    return [
        Scheduled(Request(f"{i}", [1] * known, SamplingParams()), start, count)
        for i, (start, count, known) in enumerate(shapes)
    ]


HIDDEN, INTERMEDIATE, LAYERS, VOCABULARY = 32, 48, 2, 64
KV_HEADS, HEADS, DIM = 2, 4, 8
LINEAR = LAYERS * (
    HIDDEN * HEADS * DIM + 2 * HIDDEN * KV_HEADS * DIM + HEADS * DIM * HIDDEN
    + 3 * HIDDEN * INTERMEDIATE
)  # fmt: skip
HEAD = VOCABULARY * HIDDEN
KV_BYTES = 2 * LAYERS * KV_HEADS * DIM * 4


@pytest.mark.parametrize("tied", [False, True])
def test_sizes_of_a_model(tied):
    work = ModelWork.of(tiny_llama(tie_word_embeddings=tied), KV_BYTES)
    assert work == ModelWork(LINEAR, HEAD, 4, KV_BYTES, HEADS * DIM * LAYERS)


def test_work_of_a_step_by_hand(tiny):
    work = ModelWork.of(tiny.model, KV_BYTES)
    decode = work.of_step(items((9, 1, 10)))
    assert decode.num_bytes == 4 * (LINEAR + HEAD) + KV_BYTES * (10 + 1)
    assert decode.flops == 2 * (LINEAR + HEAD) + 2 * 2 * HEADS * DIM * LAYERS * 10
    chunk = work.of_step(items((4, 3, 20)))
    assert chunk.num_bytes == 4 * LINEAR + KV_BYTES * (7 + 3)  # nothing is sampled
    assert chunk.flops == 2 * 3 * LINEAR + 2 * 2 * HEADS * DIM * LAYERS * (5 + 6 + 7)
    both = work.of_step(items((9, 1, 10), (4, 3, 20)))
    assert both.flops == decode.flops + chunk.flops
    assert both.num_bytes == decode.num_bytes + chunk.num_bytes - 4 * LINEAR  # weights once
    assert (work.of_step([]).num_bytes, work.of_step([]).flops) == (0, 0)


def test_a_mixture_uses_some_of_its_experts():
    """4 experts of 3 matrices in each of 2 layers, 1 of them per token."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=1,
    )  # fmt: skip
    work = ModelWork.of(MixtralForCausalLM(config), KV_BYTES)
    experts = LAYERS * 4 * 3 * HIDDEN * INTERMEDIATE
    others = LAYERS * HIDDEN * (2 * HEADS * DIM + 2 * KV_HEADS * DIM + 4)  # 4: the router
    assert work == ModelWork(
        experts + others, HEAD, 4, KV_BYTES, HEADS * DIM * LAYERS, experts, 1 / 4
    )
    one, two = work.of_step(items((9, 1, 10))), work.of_step(items((9, 1, 10), (9, 1, 10)))
    attention = 2 * 2 * HEADS * DIM * LAYERS * 10
    assert one.flops == 2 * (experts // 4 + others + HEAD) + attention
    assert two.flops == 2 * one.flops
    assert one.num_bytes == 4 * (experts // 4 + others + HEAD) + KV_BYTES * 11
    assert two.num_bytes == 4 * (experts * 7 // 16 + others + HEAD) + KV_BYTES * 22


def tiny_gpt2(**settings):
    """Learned positions, and matrices that are stored the other way round."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, **settings)
    return GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("build", [tiny_llama, tiny_gpt2])
def test_operations_against_torchs_own_count(build):
    """torch counts every matrix product of a plain forward, the future half of attention too."""
    from torch.utils.flop_counter import FlopCounterMode

    length, model = 12, build(attn_implementation="eager")
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.ones(1, length, dtype=torch.int64), logits_to_keep=1)
    counted = ModelWork.of(model, KV_BYTES).of_step(items((0, length, length))).flops
    future = 2 * 2 * HEADS * DIM * LAYERS * length * (length - 1) // 2
    assert counted + future == counter.get_total_flops()


def test_utilisation(timed):
    llm = timed(block_size=4)
    llm.generate(ids([1, 2, 3]), params(2))
    metrics = llm.metrics
    work = ModelWork.of(llm.model, KV_BYTES)
    steps = [work.of_step(items((0, 3, 3))), work.of_step(items((3, 1, 4)))]
    assert metrics.num_bytes == sum(step.num_bytes for step in steps)
    assert metrics.flops == sum(step.flops for step in steps)
    peak = Peak(bytes_per_second=metrics.num_bytes / 10, flops_per_second=metrics.flops / 5)
    assert metrics.bytes_per_second == metrics.num_bytes / 20
    assert metrics.mbu(peak) == pytest.approx(0.5)
    assert metrics.mfu(peak) == pytest.approx(0.25)


def test_the_cache_counts_as_it_is(tiny):
    llm = LLM(tiny, num_blocks=4, block_size=8)
    assert llm._engine.meter.work.kv_bytes == KV_BYTES


class Ticking:
    """Each look at this clock is `seconds` after the last."""

    def __init__(self, *seconds):
        self.seconds, self.now, self.looks = seconds, 0.0, 0

    def __call__(self):
        self.now += self.seconds[self.looks % len(self.seconds)]
        self.looks += 1
        return self.now


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_peak_is_the_best_run(monkeypatch, dtype):
    """Runs take 5, 4 and 2 s in turn, with a pause before each; the first one warms up."""
    from llmserve_lab.engine import peak

    monkeypatch.setitem(peak.MATRIX_BYTES, "cpu", 2**20)
    monkeypatch.setitem(peak.MATRIX_SIZE, "cpu", 16)
    clock = Ticking(1, 5, 1, 4, 1, 2)
    found = measure_peak("cpu", dtype, clock)
    assert found == Peak(2**20 / 2, 2 * 16**3 / 2)
    assert clock.looks == 2 * 2 * (FEWEST_RUNS + 1)


def test_short_runs_are_repeated(monkeypatch):
    from llmserve_lab.engine import peak

    monkeypatch.setitem(peak.MATRIX_BYTES, "cpu", 2**20)
    monkeypatch.setitem(peak.MATRIX_SIZE, "cpu", 16)
    clock = Ticking(BUDGET / 9.5)
    measure_peak("cpu", torch.float32, clock)
    assert clock.looks == 2 * 2 * (10 + 1)
