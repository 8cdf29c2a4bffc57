"""The engine on a virtual clock: times by hand, faults, and nothing left behind."""

import subprocess
import sys

import pytest

from benchmarks.simulator import soak_workload
from llmserve_lab import Scheduler, Trace
from llmserve_lab.engine.validate import SchedulerError
from llmserve_lab.simulate import (
    SLO,
    Ask,
    Constant,
    LogNormal,
    Poisson,
    SharedPrefix,
    StepLoad,
    Uniform,
    Workload,
)


def asks(*given):
    return Workload(tuple(Ask(*one) for one in given))


def test_the_path_needs_no_torch():
    code = "import sys, llmserve_lab.simulate as s; s.Simulator; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_one_request_by_hand(make_simulator):
    """8 prompt tokens take 1 + 8/8 s, each further token 1 + 1/8 s."""
    result = make_simulator().run(asks((3.0, 8, 3)))
    (metrics,) = result.finished
    assert metrics.token_times == (5.0, 6.125, 7.25)
    assert (metrics.arrival, metrics.first_scheduled) == (3.0, 3.0)
    assert (metrics.ttft, metrics.tpot, metrics.e2e) == (2.0, 1.125, 4.25)
    assert (result.started, result.ended, result.num_steps) == (0.0, 7.25, 3)
    assert (result.peak_blocks, result.num_blocks) == (3, 64)


def test_a_request_that_comes_during_a_step_counts_from_when_it_came(make_simulator):
    """The first step lasts from 0 to 2; what comes at 0.5 is served from 2 on, 1.5 s later."""
    result = make_simulator().run(asks((0.0, 8, 2), (0.5, 7, 1)))
    second, first = result.finished  # both end with the same step, but not in the order of arrival
    if first.arrival:
        first, second = second, first
    assert (second.arrival, second.first_scheduled) == (0.5, 2.0)
    assert first.token_times == (2.0, 4.0)  # the second step has 1 + 7 tokens
    assert second.token_times == (4.0,)
    assert second.queue_time == 1.5


def test_step_loads_are_counted(make_simulator):
    simulator = make_simulator(max_num_batched_tokens=6)
    machine = simulator.engine.runner._machine
    simulator.run(asks((0.0, 8, 2), (0.5, 3, 1)))
    assert machine.loads == [
        StepLoad(tokens=6, sequences=1, samples=0, kv_read=6, pairs=21, decode_kv=0, chunks=1),
        StepLoad(5, 2, 2, kv_read=11, pairs=2 * 6 + 3 + 6, decode_kv=0, chunks=2),
        StepLoad(tokens=1, sequences=1, samples=1, kv_read=9, pairs=9, decode_kv=9),
    ]
    assert StepLoad.decode(1, 9) == machine.loads[2]
    assert StepLoad.prefill(2, start=6).pairs == 15


def test_a_closed_loop_keeps_its_users_busy(make_simulator):
    workload = Workload.closed_loop(5, Constant(8), Constant(1), users=2, think_seconds=10.0)
    result = make_simulator().run(workload)
    arrivals = sorted(metrics.arrival for metrics in result.finished)
    assert arrivals == [0.0, 0.0, 13.0, 13.0, 26.0]  # both prompts: 1 + 16/8 s
    assert result.ended == 28.0


def test_an_oversize_request_is_refused_at_once_and_blocks_nobody(make_simulator):
    simulator = make_simulator(num_blocks=4)
    result = simulator.run(asks((0.0, 20, 1), (0.0, 8, 9), (0.0, 8, 2)))
    reasons = {o.ask.prompt_tokens + o.ask.output_tokens: o.finish_reason for o in result.outcomes}
    assert reasons == {21: "error", 17: "length", 10: "length"}
    assert len(result.finished) == 2
    assert result.attainment(SLO()) == pytest.approx(2 / 3)


def test_a_user_whose_request_is_refused_sends_the_next(make_simulator):
    asks = (Ask(0.0, 20, 1), Ask(0.0, 21, 1), Ask(0.0, 8, 1), Ask(0.0, 22, 1))
    result = make_simulator(num_blocks=4).run(Workload(asks, users=1))
    reasons = [outcome.finish_reason for outcome in result.outcomes]
    assert reasons == ["error", "error", "length", "error"]


def test_output_stops_at_max_model_len(make_simulator):
    result = make_simulator(max_model_len=10).run(asks((0.0, 8, 9), (0.0, 10, 1)))
    assert [(o.finish_reason, len(o.metrics.token_times)) for o in result.outcomes] == [
        ("error", 0),
        ("length", 2),
    ]


def test_clients_that_leave(make_simulator):
    gone, waiting, done = (0.0, 8, 9), (0.0, 8, 9), (0.0, 8, 9)
    workload = Workload((
        Ask(*gone, abort_after=2.5), Ask(*waiting, abort_after=0.5), Ask(*done, abort_after=1e9),
    ))  # fmt: skip
    result = make_simulator(max_num_seqs=1).run(workload)
    ends = {
        o.ask.abort_after: (o.finish_reason, len(o.metrics.token_times)) for o in result.outcomes
    }
    # Steps end at 2, 3.125, ...; whoever left is gone by the next step.
    assert ends == {0.5: ("abort", 0), 2.5: ("abort", 2), 1e9: ("length", 9)}
    assert len(result.finished) == 1


def test_preemption_costs_time_and_no_tokens(make_simulator):
    few = make_simulator(num_blocks=6).run(asks((0.0, 8, 8), (0.0, 8, 8)))
    many = make_simulator().run(asks((0.0, 8, 8), (0.0, 8, 8)))
    assert few.num_preemptions > 0 == many.num_preemptions
    assert few.num_output_tokens == many.num_output_tokens == 16
    assert few.seconds > many.seconds


def test_shared_prefixes_are_hit_and_others_are_not(make_simulator):
    prefix = SharedPrefix(Constant(8), share=1.0)
    shared = Workload.draw(6, Constant(4), Constant(1), Poisson(0.01), prefix)
    plain = Workload.draw(6, Constant(12), Constant(1), Poisson(0.01))
    caching = make_simulator(enable_prefix_caching=True)
    assert caching.run(plain).hit_rate == 0
    assert caching.run(plain).hit_rate == 0  # the same workload again, but not the same prompts
    assert caching.run(shared).hit_rate == pytest.approx(5 * 8 / (6 * 12))
    assert caching.run(shared).hit_rate == pytest.approx(6 * 8 / (6 * 12))
    assert make_simulator().run(shared).hit_rate == 0


def test_a_prefix_of_requests_that_come_together_is_computed_once(make_simulator, machine):
    prefix = SharedPrefix(Constant(8), share=1.0)
    shared = Workload.draw(6, Constant(4), Constant(1), None, prefix)
    result = make_simulator(machine, enable_prefix_caching=True).run(shared)
    assert result.hit_rate == pytest.approx(5 * 8 / (6 * 12))
    assert [load.tokens for load in machine.loads] == [12 + 5 * 4]


def test_the_same_input_gives_the_same_result(make_simulator):
    def outcome(seed):
        workload = Workload.draw(50, LogNormal(30, 1), Uniform(1, 20), Poisson(0.3), seed=seed)
        return make_simulator().run(workload).summary()

    assert outcome(1) == outcome(1) != outcome(2)


def test_a_trace_has_virtual_times_and_survives_json(make_simulator):
    simulator = make_simulator(trace=True)
    result = simulator.run(asks((0.0, 8, 3), (0.5, 4, 1)))
    steps = result.trace.steps
    assert [step.started for step in steps] == [0.0, 2.0, 3.625]
    assert [step.seconds for step in steps] == [2.0, 1.625, 1.125]
    assert [step.num_tokens for step in steps] == [8, 5, 1]
    assert Trace.from_json(result.trace.to_json()).steps == steps
    assert make_simulator().run(asks((0.0, 1, 1))).trace is None


class Hoarder(Scheduler):
    def schedule(self):
        return []


def test_a_scheduler_that_never_runs_anything_is_named_and_nothing_is_left(make_simulator):
    simulator = make_simulator(scheduler=Hoarder())
    with pytest.raises(SchedulerError, match="chose nothing"):
        simulator.run(asks((0.0, 1, 1)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
        ({"num_blocks": 0}, "num_blocks must be at least 1"),
        ({"max_model_len": 1}, "max_model_len must be at least 2"),
    ],
)
def test_bad_settings_are_named(make_simulator, settings, message):
    with pytest.raises(ValueError, match=message):
        make_simulator(**settings)


@pytest.mark.parametrize("caching", [False, True])
def test_a_soak_leaves_the_pool_as_new(make_simulator, caching):
    """The whole of it, 20,000 requests, is `python -m benchmarks.simulator soak`."""
    simulator = make_simulator(num_blocks=60, max_num_seqs=16, enable_prefix_caching=caching)
    result = simulator.run(soak_workload(1500))
    reasons = [outcome.finish_reason for outcome in result.outcomes]
    assert len(reasons) == 1500
    assert set(reasons) == {"length", "abort"}
    assert result.num_preemptions > 0
    assert result.peak_blocks > 50
    for outcome in result.outcomes:
        asked, got = outcome.ask.output_tokens, len(outcome.metrics.token_times)
        assert got == asked if outcome.finished else got < asked
        assert list(outcome.metrics.token_times) == sorted(outcome.metrics.token_times)
