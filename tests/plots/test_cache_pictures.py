"""What a KV cache saves, step by step and over the length."""

import dataclasses

import pytest

from llmserve_lab import plots
from llmserve_lab.engine.trace import Trace
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable
from tests.plots.conftest import synthetic_trace

ROWS = [
    {
        "length": n,
        "cached": {"linear": 100, "attention": 2 * n},
        "uncached": {"linear": 100 * n, "attention": 2 * n * n},
    }
    for n in (8, 16, 32)
]


@pytest.fixture
def traces():
    """One request with a cache, and the same steps in which all its tokens are computed."""
    cached = synthetic_trace(num_requests=1)
    steps = []
    for step in cached:
        (item,) = step.scheduled
        whole = dataclasses.replace(item, start=0, num_tokens=item.start + item.num_tokens)
        steps.append(dataclasses.replace(step, scheduled=(whole,)))
    return {"with": cached, "without": Trace(steps)}


def test_each_stop_shows_what_is_read_and_what_is_computed(traces):
    figure = plots.reuse_map(traces)
    require_readable(figure)
    steps = list(traces["with"])
    slider = figure.layout.sliders[0]
    assert len(slider.steps) == len(steps)
    for index, step in enumerate(steps):
        shown = [t for t, on in zip(figure.data, slider.steps[index].args[1], strict=True) if on]
        read, computed = shown
        (item,) = step.scheduled
        assert list(read.x) == [item.start, 0]
        assert list(computed.x) == [item.num_tokens, item.start + item.num_tokens]
        assert read.marker.pattern.shape != computed.marker.pattern.shape
    total = sum(step.num_tokens for step in steps)
    assert f"with: {total:,}" in slider.steps[-1].label
    assert f"with: {total:,} tokens computed in {len(steps)} steps" in describe(figure)


def test_traces_that_cannot_be_compared_are_refused(traces):
    with pytest.raises(ValueError, match="at least one trace"):
        plots.reuse_map({})
    with pytest.raises(ValueError, match="trace=True"):
        plots.reuse_map({"none": Trace()})
    shorter = Trace(traces["with"].steps[:-1])
    with pytest.raises(ValueError, match="as many steps"):
        plots.reuse_map({"with": traces["with"], "shorter": shorter})


def test_the_four_lines_are_told_apart_without_colour():
    figure = plots.step_work(ROWS)
    require_readable(figure)
    lines = {trace.name: trace for trace in figure.data}
    assert list(lines["attention, with the cache"].y) == [16, 32, 64]
    assert list(lines["weights, without"].y) == [800, 1600, 3200]
    told = {(trace.line.dash, trace.line.color, trace.marker.symbol) for trace in figure.data}
    assert len(told) == 4 and len({name for name in lines}) == 4
    assert figure.layout.yaxis.type == "log"


def test_one_length_makes_no_line():
    with pytest.raises(ValueError, match="two lengths"):
        plots.step_work(ROWS[:1])
