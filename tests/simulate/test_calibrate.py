"""Costs from measurements: exact where the times are, never negative, and used by a simulation."""

import math
import sys
from dataclasses import astuple, fields, replace

import pytest
import torch

from llmserve_lab.engine.peak import Peak
from llmserve_lab.engine.runner import ModelRunner
from llmserve_lab.simulate import (
    Constant,
    Costs,
    Deployment,
    MeasuredMachine,
    ModelSize,
    Simulator,
    StepLoad,
    Workload,
    calibrate,
    run_live,
    this_machine,
)
from llmserve_lab.simulate.costs import fit, units

TRUE = Costs(
    overhead=2e-3, token=1e-4, sequence=5e-5, sample=3e-5, decode_kv=1e-6, prefill_pair=1e-8
)
LOADS = [StepLoad.decode(b, c) for b in (1, 4, 32) for c in (10, 100, 900)]
LOADS += [StepLoad.prefill(n, start) for n in (8, 64, 500) for start in (0, 200)]
LOADS += [StepLoad(100, 9, 5, 400, 2000, 300, 2), StepLoad(64, 1, 0, 64, 2080, 0, 1)]
LOADS += [StepLoad(200, 9, 9, 400, 2000, 300, 4), StepLoad(128, 9, 2, 400, 2000, 300, 7)]


def linear(costs):
    """The costs without the corrections."""
    return astuple(costs)[:-1]


def machine_of(costs):
    return MeasuredMachine("m", "a test", costs, 1024, bytes_per_token=8, copy_bandwidth=4.0)


def test_units_come_in_the_order_of_the_costs():
    load = StepLoad(tokens=7, sequences=3, samples=2, kv_read=50, pairs=90, decode_kv=20, chunks=1)
    assert len(units(load)) == len(fields(Costs)) - 1
    total = sum(c * u for c, u in zip(linear(TRUE), units(load), strict=True))
    assert machine_of(TRUE).seconds(load) == pytest.approx(total)
    assert total == pytest.approx(2e-3 + 7e-4 + 5e-5 + 6e-5 + 20e-6 + 70e-8)


def test_a_fit_finds_the_costs_of_exact_times():
    found = fit(LOADS, [machine_of(TRUE).seconds(load) for load in LOADS])
    assert linear(found) == pytest.approx(linear(TRUE), rel=1e-6)
    assert all(abs(seconds) < 1e-8 for _, seconds in found.small)


def test_small_steps_have_corrections_of_their_own():
    """One row costs less than the line says, two to eight more, as where other code runs."""
    extra = {1: -1e-3, 2: 2e-3, 4: 2e-3, 8: 1e-3}
    sizes = [1, 2, 4, 8, 16, 32]
    loads = LOADS + [StepLoad.decode(b, c) for b in sizes for c in (10, 100, 300, 900)]
    times = [machine_of(TRUE).seconds(load) + extra.get(load.tokens, 0.0) for load in loads]
    found = fit(loads, times)
    assert linear(found) == pytest.approx(linear(TRUE), rel=0.05)
    for load, seconds in zip(loads, times, strict=True):
        assert found.seconds(load) == pytest.approx(seconds, rel=0.02)
    between = (found.seconds(StepLoad.decode(2, 10)) + found.seconds(StepLoad.decode(4, 10))) / 2
    assert found.seconds(StepLoad.decode(3, 10)) == pytest.approx(between)


def test_corrections_end_where_large_steps_begin():
    costs = replace(TRUE, small=((2, 4.0), (32, 8.0)))
    plain = machine_of(TRUE)
    wanted = {1: 4.0, 2: 4.0, 17: 6.0, 32: 8.0, 48: 4.0, 64: 0.0, 900: 0.0}
    for tokens, correction in wanted.items():
        load = StepLoad.prefill(tokens)
        assert costs.seconds(load) - plain.seconds(load) == pytest.approx(correction)


def test_no_step_takes_less_than_no_time():
    costs = replace(TRUE, small=((1, -5.0), (2, 0.0)))
    assert costs.seconds(StepLoad.decode(1, 1)) > 0


def test_a_fit_has_no_negative_cost():
    """Times that fall with the context would ask for one."""
    times = [0.01 - 1e-6 * load.decode_kv / load.sequences for load in LOADS]
    found = fit(LOADS, times)
    assert min(linear(found)) >= 0
    assert found.decode_kv == 0
    for load, seconds in zip(LOADS, times, strict=True):
        assert machine_of(found).seconds(load) == pytest.approx(seconds, rel=0.2)


def test_too_few_measurements_are_refused():
    with pytest.raises(ValueError, match="6 costs need as many measurements, not 2"):
        fit(LOADS[:2], [1.0, 1.0])


def test_a_measured_machine_has_blocks_and_copies():
    machine = machine_of(TRUE)
    assert machine.num_blocks(16) == 64
    assert machine.copy_seconds(10) == 20.0


class StepClock:
    """Goes on only when the model runs: 1 s per step and 1/8 s per token."""

    now = 0.0

    def __call__(self):
        return self.now

    def slow_down(self, run):
        def slowly(runner, batch):
            self.now += 1 + sum(item.num_tokens for item in batch) / 8
            return run(runner, batch)

        return slowly


def test_calibration_runs_the_real_engine_and_finds_what_its_steps_cost(tiny, monkeypatch):
    clock = StepClock()
    monkeypatch.setattr(ModelRunner, "run", clock.slow_down(ModelRunner.run))
    machine = calibrate(tiny, seconds=0.0, clock=clock, max_model_len=64, block_size=4)
    assert machine.costs.overhead == pytest.approx(1.0)
    assert machine.costs.token + machine.costs.sample == pytest.approx(0.125)
    assert machine.name == "tiny"
    assert "threads, float32" in machine.conditions
    assert machine.tokens == 64 * 64  # of max_num_seqs full sequences
    workload = Workload.draw(9, Constant(8), Constant(4))
    result = Simulator(machine, block_size=4).run(workload)
    assert result.seconds == pytest.approx(4 * 1 + (9 * 8 + 9 * 3) / 8)


def test_a_live_run_and_a_simulation_agree_on_everything_but_the_time(make_llm):
    workload = Workload.draw(12, Constant(10), Constant(7))
    settings = {"num_blocks": 24, "max_num_seqs": 8, "max_num_batched_tokens": 32}
    live = run_live(make_llm(**settings), workload)
    simulated = Simulator(machine_of(TRUE), block_size=4, **settings).run(workload)
    for result in (live, simulated):
        assert result.num_output_tokens == 84
    assert live.num_steps == simulated.num_steps
    assert live.num_preemptions == simulated.num_preemptions > 0
    assert live.peak_blocks == simulated.peak_blocks
    ends = [[outcome.request_id for outcome in r.outcomes] for r in (live, simulated)]
    assert ends[0] == ends[1]


def test_a_live_run_keeps_the_times_of_its_requests(make_llm):
    """Requests count from when they were to be sent; nobody is served before."""
    from llmserve_lab.simulate import Fixed

    workload = Workload.draw(5, Constant(3), Constant(2), Fixed(200.0))
    result = run_live(make_llm(), workload)
    for outcome in result.outcomes:
        assert outcome.metrics.arrival == result.started + outcome.ask.arrival
        assert outcome.metrics.queue_time >= 0


def test_a_busy_engine_takes_no_workload(make_llm):
    llm = make_llm()
    llm.add_request("abc")
    with pytest.raises(ValueError, match="requests under way"):
        run_live(llm, Workload.draw(1, Constant(1), Constant(1)))
    llm.abort("0")
    llm.step()


def test_this_machine_and_utilisation_are_one_measurement(monkeypatch):
    asked = []

    def measured(device, dtype):
        asked.append((device.type, dtype))
        return Peak(bytes_per_second=3.0, flops_per_second=5.0)

    module = sys.modules[this_machine.__module__]
    monkeypatch.setattr(module, "measure_peak", measured)
    row = this_machine(torch.bfloat16)
    assert (row.bandwidth, row.flops) == (3.0, 5.0)
    assert [dtype for _, dtype in asked] == [torch.bfloat16]
    assert "bfloat16" in row.source


def test_this_machine_is_a_row_of_the_table():
    row = this_machine()
    assert row.name == "this machine"
    assert row.source.startswith("measured here")
    for figure in (row.memory_gib, row.bandwidth, row.flops, row.host_link):
        assert 0 < figure < math.inf
    small = ModelSize("small", 10**6, 64, ModelSize.llama2_7b().kv)
    assert Deployment(small, row).seconds(StepLoad.decode(1, 10)) > 0
