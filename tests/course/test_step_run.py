"""A run whose clock counts steps: the same on every machine, and the same as in the simulator."""

from __future__ import annotations

import pytest

from llmserve_lab import SamplingParams, Scheduler, StaticBatchingScheduler
from llmserve_lab.course.step_cost import StepCost
from llmserve_lab.course.step_run import (
    Life,
    arrive_in_steps,
    lives,
    same_tokens,
    serve_in_steps,
)
from llmserve_lab.course.two_part_machine import TwoPartMachine
from llmserve_lab.simulate import Ask, Constant, Simulator, Uniform, Workload

ROOMY = {"num_blocks": 64, "block_size": 4}


def asks(*rows):
    return Workload(tuple(Ask(float(arrival), prompt, answer) for arrival, prompt, answer in rows))


def test_times_are_whole_steps_from_the_start(tiny):
    run = serve_in_steps(tiny, asks((0, 3, 2), (0, 3, 4), (1, 3, 1)), Scheduler(), 2, **ROOMY)
    assert run.lives == (Life(0, 0, 1, 2), Life(0, 0, 1, 4), Life(1, 2, 3, 3))
    assert (run.steps, run.end, run.num_tokens) == (4, 4, 7)
    assert [run.running(k) for k in range(5)] == [2, 2, 2, 1, 0]
    assert [run.waiting(k) for k in range(3)] == [0, 1, 0]
    assert (run.joined, run.wasted) == (1, 0)
    assert run.in_use == 7 / 8 and run.tokens_per_step == 7 / 4
    assert run.lives[2].wait == run.wait(100) == 2 and run.latency(100) == 4


def test_a_static_batch_keeps_its_places_and_collects_in_steps(tiny):
    workload = asks((0, 3, 1), (2, 3, 5), (3, 3, 2))
    run = serve_in_steps(tiny, workload, StaticBatchingScheduler(2, max_wait=4), 2, **ROOMY)
    assert run.lives == (Life(0, 2, 3, 3), Life(2, 2, 3, 7), Life(3, 7, 8, 9))
    assert run.joined == 0
    assert run.wasted == 2 + 4  # while it collects; then the third waits beside an empty place
    assert run.steps == 7  # nothing ran before the batch was full


def test_prompts_and_tokens_are_those_that_ran(tiny, make_llm):
    run = serve_in_steps(tiny, asks((0, 3, 4), (0, 9, 2), (1, 5, 3)), None, 2, **ROOMY)
    assert [len(prompt) for prompt in run.prompts] == [3, 9, 5]
    for prompt, tokens in zip(run.prompts, run.tokens, strict=True):
        params = SamplingParams(temperature=0, max_tokens=len(tokens), ignore_eos=True)
        (alone,) = make_llm().generate([{"prompt_token_ids": prompt}], params)
        assert alone.outputs[0].token_ids == tokens
    other = serve_in_steps(tiny, asks((0, 3, 4), (0, 9, 2), (1, 5, 2)), None, 2, **ROOMY)
    assert same_tokens([run, run]) and not same_tokens([run, other])


@pytest.mark.parametrize("make", [lambda: None, lambda: StaticBatchingScheduler(3, max_wait=5)])
def test_the_simulator_gives_every_request_the_same_steps(tiny, make):
    workload = arrive_in_steps(12, Uniform(2, 20), Uniform(1, 9), rate=0.5, seed=3)
    settings = ROOMY | {"max_num_batched_tokens": 16}
    run = serve_in_steps(tiny, workload, make(), 3, **settings)
    machine = TwoPartMachine(StepCost(1.0, 0.0))
    twin = Simulator(machine, scheduler=make(), max_num_seqs=3, **settings).run(workload)
    assert lives(twin) == run.lives and twin.num_steps == run.steps


def test_what_is_sent_back_is_computed_again(tiny):
    run = serve_in_steps(
        tiny, Workload.draw(4, Constant(8), Constant(12)), None, 4, num_blocks=12, block_size=4
    )
    assert run.preemptions > 0
    assert run.computed > 4 * (8 + 12 - 1)
    ample = serve_in_steps(tiny, Workload.draw(4, Constant(8), Constant(12)), None, 4, **ROOMY)
    assert (ample.preemptions, ample.computed) == (0, 4 * (8 + 12 - 1))
    assert same_tokens([run, ample])


def test_arrivals_are_at_whole_steps_and_random():
    drawn = arrive_in_steps(50, Constant(3), Constant(2), rate=0.25, seed=1)
    times = [ask.arrival for ask in drawn.asks]
    assert times == sorted(times) and all(time == int(time) for time in times)
    assert 100 < times[-1] < 400
    assert drawn == arrive_in_steps(50, Constant(3), Constant(2), rate=0.25, seed=1)
    assert drawn != arrive_in_steps(50, Constant(3), Constant(2), rate=0.25, seed=2)


def test_it_is_told_in_one_line(tiny):
    run = serve_in_steps(tiny, asks((0, 3, 2)), None, 1, **ROOMY)
    assert str(run) == "2 tokens in   2 steps, 1.00 a step; median TTFT 1"
