"""Every scheduler of the engine on the virtual clock, waiting included."""

import math
from dataclasses import replace

import pytest

from llmserve_lab.engine.preemption import SwapToHost
from llmserve_lab.engine.priority import PriorityScheduler
from llmserve_lab.engine.static_scheduler import StaticBatchingScheduler
from llmserve_lab.simulate import Ask, Constant, LogNormal, Poisson, Workload


def load(*asks):
    return Workload(tuple(Ask(*ask) for ask in asks))


def by_arrival(result):
    return sorted(result.finished, key=lambda metrics: metrics.arrival)


def test_a_static_batch_waits_for_its_time(make_simulator):
    simulator = make_simulator(scheduler=StaticBatchingScheduler(batch_size=4, max_wait=5.0))
    result = simulator.run(load((1.0, 8, 1), (3.0, 8, 1)))
    assert [metrics.first_scheduled for metrics in by_arrival(result)] == [6.0, 6.0]
    assert result.ended == 6.0 + 1 + 16 / 8
    assert result.num_steps == 1


def test_a_full_static_batch_starts_at_once(make_simulator):
    simulator = make_simulator(scheduler=StaticBatchingScheduler(batch_size=2, max_wait=5.0))
    result = simulator.run(load((1.0, 8, 1), (3.0, 8, 3), (3.5, 8, 1)))
    assert [metrics.first_scheduled for metrics in by_arrival(result)] == [3.0, 3.0, 8.5]


def test_a_client_may_leave_while_a_static_batch_waits(make_simulator):
    simulator = make_simulator(scheduler=StaticBatchingScheduler(batch_size=2, max_wait=5.0))
    workload = Workload((Ask(1.0, 8, 1, abort_after=2.0), Ask(20.0, 8, 1)))
    first, second = simulator.run(workload).outcomes
    assert (first.finish_reason, second.metrics.first_scheduled) == ("abort", 25.0)


def test_clients_that_were_served_and_leave_later_wake_nobody(make_simulator):
    """A scheduler that is woken again and again for nothing is taken for one in a loop."""
    served = [Ask(0.0, 1, 1, abort_after=100.0 + i) for i in range(20)]
    static = StaticBatchingScheduler(batch_size=20, max_wait=1000.0)
    workload = Workload((*served, Ask(50.0, 8, 1)))
    result = make_simulator(scheduler=static).run(workload)
    assert result.outcomes[-1].metrics.first_scheduled == 1050.0
    assert len(result.finished) == 21


def test_a_static_batch_that_waits_for_ever_ends_with_the_clients(make_simulator):
    static = StaticBatchingScheduler(batch_size=3, max_wait=1e6)
    workload = Workload((Ask(1.0, 8, 1, abort_after=2.0), Ask(2.0, 8, 1, abort_after=7.0)))
    result = make_simulator(scheduler=static).run(workload)
    assert [outcome.finish_reason for outcome in result.outcomes] == ["abort"] * 2
    assert result.ended == 9.0


def test_priorities_are_handed_on(make_simulator):
    simulator = make_simulator(scheduler=PriorityScheduler(), max_num_seqs=1)
    asks = [Ask(0.0, 8, 1), Ask(0.0, 7, 1, priority=1), Ask(0.5, 6, 1, priority=-1)]
    result = simulator.run(Workload(tuple(asks)))
    assert [outcome.ask.prompt_tokens for outcome in result.outcomes] == [8, 6, 7]


def test_swapping_takes_the_time_of_its_copies(make_simulator):
    swap = PriorityScheduler(preemption=SwapToHost(num_blocks=100))
    simulator = make_simulator(num_blocks=6, scheduler=swap)
    result = simulator.run(load((0.0, 8, 8), (0.0, 8, 8)))
    copied = swap.preemption.num_swapped_out + swap.preemption.num_swapped_in
    assert copied == 2 * swap.preemption.num_swapped_in > 0
    computed = sum(load.tokens for load in simulator.engine.runner._machine.loads)
    assert computed == 2 * (8 + 7)  # nothing is computed again
    assert result.seconds == result.num_steps + computed / 8 + copied * 4 * 0.25


@pytest.mark.parametrize(
    "scheduler",
    [
        StaticBatchingScheduler(8, max_wait=3.0),
        PriorityScheduler(preemption=SwapToHost(20)),
    ],
    ids=["static", "priority"],
)
def test_each_serves_everybody_and_leaves_nothing(make_simulator, scheduler):
    drawn = Workload.draw(300, LogNormal(12, 1, 1, 90), LogNormal(6, 1, 1, 40), Poisson(1.0))
    asks = [
        replace(ask, priority=i % 3, abort_after=4.0 if i % 5 == 0 else math.inf)
        for i, ask in enumerate(drawn.asks)
    ]
    simulator = make_simulator(scheduler=scheduler, num_blocks=50, enable_prefix_caching=True)
    result = simulator.run(Workload(tuple(asks)))
    assert len(result.outcomes) == 300
    assert sum(outcome.finished for outcome in result.outcomes) >= 240


def test_continuous_batching_beats_static_batching_on_mixed_lengths(make_simulator):
    workload = Workload.draw(64, Constant(8), LogNormal(8, 1, 1, 60))
    static = make_simulator(scheduler=StaticBatchingScheduler(8), max_num_seqs=8).run(workload)
    continuous = make_simulator(max_num_seqs=8).run(workload)
    assert continuous.num_output_tokens == static.num_output_tokens
    assert continuous.num_steps < 0.7 * static.num_steps
