"""What chapter 08 and its exercise run: real steps of each batch, and services that repeat."""

from __future__ import annotations

import math

import pytest

from llmserve_lab.course.batch_sweep import BURST, measure_batches
from llmserve_lab.course.service import Service
from llmserve_lab.course.step_cost import StepCost, fit_step_cost
from llmserve_lab.course.two_part_machine import TwoPartMachine
from llmserve_lab.simulate import ModelSize, StepLoad


@pytest.fixture(scope="module")
def points():
    from llmserve_lab import load

    model = load("lab-target", device="cpu", dtype="float32")
    return model, measure_batches(model, [1, 3], context=20, rounds=2)


class TestMeasureBatches:
    def test_a_point_for_each_size_of_full_steps(self, points):
        _, (one, three) = points
        assert (one.batch_size, three.batch_size) == (1, 3)
        assert one.steps == three.steps == 2 * (BURST - 1)
        assert three.tokens_per_second == 3 / three.seconds
        assert one.tpot_ms == 1000 * one.seconds > 0

    def test_bytes_are_the_weights_once_and_each_requests_kv(self, points):
        model, found = points
        work = ModelSize.of("lab", model.model).work
        for point in found:
            assert point.context == 20 + 1 + 2 * BURST
            step = work.of_load(StepLoad.decode(point.batch_size, point.context))
            assert (point.num_bytes, point.flops) == (step.num_bytes, step.flops)
        assert found[1].num_bytes - found[0].num_bytes == 2 * (found[0].context + 1) * work.kv_bytes

    @pytest.mark.parametrize(
        ("sizes", "rounds", "words"),
        [([], 1, "at least one"), ([0], 1, "batch size"), ([1], 0, "rounds")],
    )
    def test_bad_input_is_refused(self, points, sizes, rounds, words):
        with pytest.raises(ValueError, match=words):
            measure_batches(points[0], sizes, context=20, rounds=rounds)


class TestStepCost:
    def test_a_line_is_found_again(self):
        cost = fit_step_cost([1, 4, 16], [0.5 + 0.25 * b for b in (1, 4, 16)])
        assert cost.fixed == pytest.approx(0.5) and cost.each == pytest.approx(0.25)

    def test_at_the_knee_a_doubling_gives_four_thirds_and_half_of_the_most(self):
        cost = StepCost(0.5, 0.0625)
        assert cost.knee == 8
        gain = cost.tokens_per_second(16) / cost.tokens_per_second(8)
        assert gain == pytest.approx(4 / 3)
        assert cost.tokens_per_second(8) == cost.most / 2 == 8

    def test_the_largest_batch_keeps_a_promise_that_is_met_exactly(self):
        cost = StepCost(0.5, 0.25)
        assert [cost.largest(t) for t in (2.0, 1.99, 0.75, 0.74, 0.1)] == [6, 5, 1, 0, 0]

    def test_no_part_is_below_zero(self):
        falling, steep = fit_step_cost([1, 2], [2.0, 1.0]), fit_step_cost([1, 2], [1.0, 3.0])
        assert falling.each == 0 and falling.knee == falling.most == math.inf
        assert steep.fixed == 0 and steep.each > 0
        with pytest.raises(ValueError, match="no cost for each request"):
            falling.largest(1.0)

    def test_one_size_is_no_line(self):
        with pytest.raises(ValueError, match="two batch sizes"):
            fit_step_cost([4, 4], [1.0, 1.1])


class TestService:
    def test_it_always_does_the_same(self):
        one, other = (Service(0.003, 0.0003, 90, prompt_token=0.0001) for _ in range(2))
        assert one.run(4) == other.run(4)
        assert one.run(4) != Service(0.003, 0.0003, 90, prompt_token=0.0001, seed=1).run(4)

    def test_a_limit_caps_the_batch_and_a_smaller_one_takes_more_steps(self):
        night = Service(0.003, 0.0003, math.inf, count=12)
        runs = {limit: night.run(limit) for limit in (1, 4, 64)}
        assert {limit: run.largest for limit, run in runs.items()} == {1: 1, 4: 4, 64: 12}
        assert runs[1].steps > runs[4].steps > runs[64].steps
        assert runs[1].steps == night.workload().num_output_tokens
        assert all(len(run.waits) == 12 for run in runs.values())

    def test_a_machine_takes_what_its_formula_says(self):
        machine = TwoPartMachine(StepCost(1.0, 0.5), prompt_token=0.25)
        assert machine.seconds(StepLoad.decode(4, 10)) == 3.0
        assert machine.seconds(StepLoad.prefill(9)) == 1.5 + 8 * 0.25
        assert machine.num_blocks(16) * 16 == machine.kv_tokens
