"""Loads are counted from a trace as the scheduler counts them, and simulated at each load."""

from __future__ import annotations

import pytest

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.course.load_sweep import fitted_machine, step_load, sweep
from llmserve_lab.engine.scheduler import Scheduler
from llmserve_lab.simulate import Constant, Fixed, Simulator, StepLoad, Workload, run_live

PROMPTS = [{"prompt_token_ids": list(range(1, 1 + n))} for n in (1, 5, 30, 17, 9)]


class Counting(Scheduler):
    """Keeps the load of every batch that ran."""

    loads: list[StepLoad]

    def schedule(self):
        batch = super().schedule()
        self.loads.append(StepLoad.of(batch))
        return batch


def workload(rate: float = 50.0) -> Workload:
    return Workload.draw(8, Constant(12), Constant(5), Fixed(rate))


def test_the_load_of_each_step_is_the_schedulers(make_llm):
    scheduler = Counting()
    scheduler.loads = []
    llm = make_llm(scheduler=scheduler, max_num_batched_tokens=16, trace=True)
    llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True))
    assert [step_load(step) for step in llm.trace] == scheduler.loads
    assert {load.samples < load.sequences for load in scheduler.loads} == {True, False}  # chunks


def test_a_fitted_machine_can_be_simulated(tiny):
    live = run_live(LLM(tiny, trace=True, num_blocks=64, block_size=4), workload())
    machine = fitted_machine(LLM(tiny, num_blocks=64, block_size=4), [live])
    assert str(live.num_steps) in machine.conditions
    twin = Simulator(machine, num_blocks=64, block_size=4).run(workload())
    assert twin.num_output_tokens == live.num_output_tokens
    assert twin.seconds > 0


def test_runs_without_a_trace_are_refused(tiny):
    result = run_live(LLM(tiny, num_blocks=64, block_size=4), workload())
    with pytest.raises(ValueError, match="trace=True"):
        fitted_machine(LLM(tiny), [result])


def test_a_sweep_offers_each_share_of_the_capacity():
    class Machine:
        def seconds(self, load):
            return 0.01

        def num_blocks(self, block_size):
            return 64

    points = sweep(Machine(), (0.5, 2.0), 10.0, workload, max_num_seqs=1)
    assert [(point.load, point.offered) for point in points] == [(0.5, 5.0), (2.0, 20.0)]
    calm, busy = (point.result for point in points)
    assert calm.percentile("queue_time", 100) == 0  # 0.05 s of work every 0.2 s
    assert busy.request_throughput > calm.request_throughput
