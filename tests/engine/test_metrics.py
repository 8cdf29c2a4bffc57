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


def test_preempted_before_its_first_token(timed):
    """Half of its prompt was read when it had to go: it waited, and its user felt all of it."""
    from llmserve_lab import Scheduler

    class Rude(Scheduler):
        """Sends the first request away in the second step."""

        steps = 0

        def schedule(self):
            batch = super().schedule()
            self.steps += 1
            if self.steps == 2:
                self._preempt(batch.pop(0).request)
            return batch

    llm, _ = timed(max_num_batched_tokens=4, scheduler=Rude())
    metrics = llm.generate("a" * 8 + "b", params(3))[0].metrics
    assert metrics.num_preemptions == 1
    assert metrics.queue_time == 0
    assert metrics.ttft == 40  # 4 tokens; then, from the beginning, 4, 4 and 1
    assert metrics.token_times == (40, 50, 60)


@pytest.mark.parametrize("kind", ["recompute", "swap"])
def test_no_token_is_timed_twice_or_lost(timed, kind):
    from llmserve_lab import Recompute, Scheduler, SwapToHost

    preemption = Recompute() if kind == "recompute" else SwapToHost(num_blocks=6)
    llm, clock = timed(num_blocks=6, block_size=4, scheduler=Scheduler(preemption))
    outputs = llm.generate(["abcd", "wxyz", "ef"], params(12))
    assert sum(output.metrics.num_preemptions for output in outputs) > 1
    for output in outputs:
        metrics = output.metrics
        assert len(metrics.token_times) == 12
        assert all(gap >= 10 for gap in metrics.inter_token_gaps)
        assert metrics.ttft + sum(metrics.inter_token_gaps) == metrics.e2e
        assert metrics.ttft == metrics.token_times[0] - metrics.arrival
        assert metrics.tpot * 11 == pytest.approx(sum(metrics.inter_token_gaps))
    assert max(output.metrics.e2e for output in outputs) == clock.now


def test_events_and_results_tell_the_same_times(timed):
    llm, _ = timed(num_blocks=3, block_size=4)
    outputs = llm.generate(["abcd", "wxyz"], params(6))
    began = llm._engine.clock.now
    events = list(llm.stream(["abcd", "wxyz"], params(6)))
    for output, name in zip(outputs, ("2", "3"), strict=True):
        times = [event.seconds - began for event in events if event.request_id == name]
        assert tuple(times) == output.metrics.token_times


def test_text_that_is_held_back_delays_no_token(timed):
    llm, _ = timed()
    text = llm.generate("abc", params(4))[0].outputs[0].text
    held = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, stop=[text + "~"])
    assert llm.generate("abc", held)[0].metrics.inter_token_gaps == (10, 10, 10)


def test_continuations_have_their_first_token_together(timed):
    llm, clock = timed(max_num_batched_tokens=4)
    clock.now = 7.0
    many = SamplingParams(n=3, seed=0, max_tokens=2, ignore_eos=True)
    (output,) = llm.generate("abcdefgh", many)
    for one in output.outputs:
        assert (one.metrics.arrival, one.metrics.queue_time, one.metrics.ttft) == (7, 0, 20)
