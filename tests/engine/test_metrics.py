"""Latencies on a clock that the test turns: one second per look at it."""

import pytest

from llmserve_lab import SamplingParams
from llmserve_lab.engine.metrics import RequestMetrics


class Clock:
    """Counts the seconds that a runner takes: 10 for each step."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def timed(make_llm):
    """An engine whose every step takes 10 s."""

    def make(**settings):
        clock = Clock()
        llm = make_llm(clock=clock, **settings)
        run = llm._engine.runner.run

        def slow(batch):
            clock.now += 10
            return run(batch)

        llm._engine.runner.run = slow
        return llm, clock

    return make


def params(count):
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)


def test_one_request(timed):
    llm, clock = timed()
    clock.now = 100.0
    metrics = llm.generate("abc", params(4))[0].metrics
    assert metrics.arrival == 100
    assert metrics.token_times == (110, 120, 130, 140)
    assert (metrics.queue_time, metrics.ttft, metrics.tpot, metrics.e2e) == (0, 10, 10, 40)
    assert metrics.inter_token_gaps == (10, 10, 10)
    assert metrics.num_prompt_tokens == 3


def test_one_token_has_no_time_per_output_token(timed):
    metrics = timed()[0].generate("abc", params(1))[0].metrics
    assert metrics.tpot is None
    assert metrics.inter_token_gaps == ()
    assert metrics.ttft == metrics.e2e == 10


def test_time_in_the_queue(timed):
    llm, _ = timed(max_num_seqs=1)
    first, second = llm.generate(["abc", "xyz"], params(3))
    assert first.metrics.queue_time == 0
    assert second.metrics.queue_time == 30
    assert second.metrics.ttft == 40
    assert second.metrics.e2e == 60


def test_a_prompt_in_chunks_has_its_first_token_after_the_last_chunk(timed):
    llm, _ = timed(max_num_batched_tokens=4)
    metrics = llm.generate("a" * 10, params(2))[0].metrics
    assert metrics.queue_time == 0
    assert metrics.ttft == 30
    assert metrics.token_times == (30, 40)


def test_preemption_neither_resets_nor_hides_anything(timed):
    llm, _ = timed(num_blocks=3, block_size=4)
    first, second = llm.generate(["abcd", "wxyz"], params(6))
    assert first.metrics.token_times == (10, 20, 30, 40, 50, 60)
    assert second.metrics.num_preemptions == 1
    assert second.metrics.queue_time == 0
    assert second.metrics.ttft == 10
    assert len(second.metrics.token_times) == 6
    gaps = second.metrics.inter_token_gaps
    assert max(gaps) == 60  # it waited for the first one's blocks
    assert sum(gaps) == second.metrics.e2e - second.metrics.ttft


def test_hits_are_prompt_tokens_even_when_outputs_are_found_again(timed):
    llm, _ = timed(num_blocks=6, block_size=2, enable_prefix_caching=True)
    outputs = llm.generate(["abcd", "wxyz"], params(6))
    assert sum(output.metrics.num_preemptions for output in outputs) > 0
    assert all(output.metrics.num_hit_tokens <= 4 for output in outputs)


def test_an_aborted_request_without_a_token(timed):
    llm, _ = timed()
    llm.add_request("abc", params(3))
    llm.abort("0")
    (event,) = llm.step()
    assert (event.index, event.token_id, event.finish_reason) == (0, None, "abort")


def test_without_tokens_there_are_no_latencies():
    metrics = RequestMetrics(5.0, None, (), 3)
    assert (metrics.queue_time, metrics.ttft, metrics.tpot, metrics.e2e) == (None,) * 4
    assert metrics.inter_token_gaps == ()


def test_the_metrics_of_n_are_those_of_the_last_to_end(timed):
    llm, _ = timed(max_num_seqs=1)
    many = SamplingParams(n=3, seed=0, max_tokens=2, ignore_eos=True)
    (output,) = llm.generate("abc", many)
    assert output.metrics == output.outputs[2].metrics
    assert output.metrics.e2e == 60
