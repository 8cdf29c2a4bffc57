"""Who waits, in steps, for each limit on the batch."""

from __future__ import annotations

import pytest

from llmserve_lab import plots
from llmserve_lab.plots.display import require_readable
from tests.plots.conftest import synthetic_trace


def stop(figure, number):
    """The bars of one stop: queue, prefill, decode."""
    return figure.data[3 * number : 3 * number + 3]


def test_each_limit_is_a_stop_with_the_steps_of_its_own_run():
    traces = {limit: synthetic_trace(4, limit) for limit in (1, 4)}
    figure = plots.user_waits(traces)
    require_readable(figure)
    for number, trace in enumerate(traces.values()):
        bars = stop(figure, number)
        ran = sum(len(step.scheduled) for step in trace)
        assert sum(sum(filter(None, bar.x)) for bar in bars[1:]) == ran
        ends = [b + x for bar in bars[1:] for b, x in zip(bar.base or (), bar.x, strict=False) if x]
        assert max(ends) == len(trace)
    assert list(stop(figure, 1)[0].x) == [None]  # with room for all nobody waits
    assert sum(stop(figure, 0)[0].x) > 0


def test_the_slider_shows_one_limit_at_a_time():
    figure = plots.user_waits({1: synthetic_trace(4, 1), 4: synthetic_trace(4, 4)}, start=1)
    assert [trace.visible for trace in figure.data] == [False] * 3 + [True] * 3
    assert "limit 4:" in figure.layout.meta["alt"]


def test_it_needs_a_trace():
    with pytest.raises(ValueError, match="at least one limit"):
        plots.user_waits({})
