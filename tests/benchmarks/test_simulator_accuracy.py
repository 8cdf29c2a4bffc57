"""Live runs and calibration are put on one speed; medians and errors are those of the numbers."""

import pytest

from benchmarks.simulator_accuracy import (
    LIMITS,
    LOAD,
    REQUESTS,
    Bench,
    SteadyClock,
    _compare,
    workloads,
)
from llmserve_lab.simulate import Constant, Costs, MeasuredMachine, Workload

COSTS = Costs(1.0, 0.125, 0.0, 0.0, 0.0, 0.0)
MACHINE = MeasuredMachine("m", "a test", COSTS, tokens=1024, bytes_per_token=8, copy_bandwidth=4.0)


class FakeClock:
    now = 0.0

    def __call__(self):
        return self.now

    def wait_until(self, seconds):
        self.now = max(self.now, seconds)


class FakeReference:
    """Says one speed after the other."""

    def __init__(self, *speeds):
        self._speeds = iter(speeds)

    def speed(self):
        return next(self._speeds)


def bench_with(*speeds):
    bench = Bench.__new__(Bench)
    bench.raw = FakeClock()
    bench.clock, bench.reference, bench.speeds = SteadyClock(bench.raw), FakeReference(*speeds), []
    return bench


def test_a_steady_clock_tells_and_waits_in_its_own_seconds():
    raw = FakeClock()
    clock = SteadyClock(raw)
    clock.speed = 0.5
    clock.wait_until(3.0)
    assert (raw.now, clock()) == (6.0, 3.0)


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
def test_the_same_work_takes_the_same_steady_time_at_any_speed(speed):
    bench = bench_with(speed, speed)

    def work():
        began = bench.clock()
        bench.raw.now += 10 / speed
        return bench.clock() - began

    took, factor = bench.steadily(work)
    assert took * factor == pytest.approx(10.0)


def test_a_drift_during_the_work_is_halved_between_before_and_after():
    bench = bench_with(1.0, 0.8)
    _, factor = bench.steadily(lambda: None)
    assert factor == pytest.approx(0.9)
    assert bench.speeds == [1.0, 0.8]


def test_each_metric_is_compared_by_its_median_with_its_own_error():
    workload = Workload.draw(4, Constant(8), Constant(4))
    # one step for all prompts and three of 4 tokens: 4 x 1 + (32 + 12) / 8 seconds
    runs = [dict.fromkeys(LIMITS, value) for value in (10.0, 8.0, 19.0)]
    row = _compare(MACHINE, workload, {}, runs)
    assert row["live"] == dict.fromkeys(LIMITS, 10.0)
    assert row["simulated"]["seconds"] == pytest.approx(9.5)
    assert row["error"]["seconds"] == pytest.approx(-0.05)
    assert row["simulated"]["ttft_p50"] == pytest.approx(5.0)
    assert row["error"]["ttft_p50"] == pytest.approx(-0.5)
    assert row["spread"] == dict.fromkeys(LIMITS, 1.1)


def test_each_open_loop_asks_for_a_share_of_its_own_capacity():
    asked = []

    def capacity(workload, settings):
        assert all(ask.arrival == 0 for ask in workload.asks)
        asked.append(settings)
        return 10.0 if settings else 20.0

    cases = workloads(capacity)
    assert len(cases) == 6 and len(asked) == 4
    ends = {name: case[0].asks[-1].arrival for name, case in cases.items()}
    assert ends["shared prefix"] == pytest.approx(2 * ends["Poisson"])
    assert REQUESTS / ends["Poisson"] == pytest.approx(LOAD * 20.0, rel=0.3)
    assert workloads(capacity) == cases


def test_a_slower_machine_shows_what_each_metric_makes_of_it():
    workload = Workload.draw(4, Constant(8), Constant(4))
    row = _compare(MACHINE, workload, {}, [dict.fromkeys(LIMITS, 1.0)])
    assert row["if_slower"] == pytest.approx(dict.fromkeys(LIMITS, 0.05))
