"""The pictures of chapter 05 draw the runs that they are given, and say what is simulated."""

from __future__ import annotations

import pytest

from llmserve_lab import plots
from llmserve_lab.course.load_sweep import LoadPoint
from llmserve_lab.engine.metrics import RequestMetrics
from llmserve_lab.plots.display import require_readable
from llmserve_lab.plots.in_system import number_in_system
from llmserve_lab.simulate import SLO, Ask, LoadResult, Outcome

DONE = [
    RequestMetrics(1.0, 1.0, (2.0, 3.0), 8),
    RequestMetrics(1.5, 2.0, (2.5,), 8),
    RequestMetrics(4.0, 4.0, (4.5, 5.0), 8),
]


def point(load: float, ttft: float, count: int = 4) -> LoadPoint:
    metrics = RequestMetrics(0.0, 0.0, (ttft, ttft + 1.0), 8)
    outcomes = tuple(Outcome(Ask(0.0, 8, 2), str(i), "length", metrics) for i in range(count))
    return LoadPoint(load, 10 * load, LoadResult(outcomes, 0.0, 2.0, 9, 10, 1))


POINTS = [point(0.5, 0.1), point(1.0, 0.5, 8), point(1.5, 2.0, 8)]


class TestInSystem:
    def test_both_areas_are_the_same(self):
        figure = plots.in_system(DONE)
        require_readable(figure)
        rows = sum(sum(t.x) for t in figure.data if t.type == "bar")
        curve = next(t for t in figure.data if t.name == "in the system")
        steps = zip(curve.x, curve.x[1:], curve.y, strict=False)
        assert rows == sum((after - now) * count for now, after, count in steps) == 4.0
        mean = next(t for t in figure.data if t.name.startswith("mean"))
        assert set(mean.y) == {4.0 / 4.0}

    def test_who_waits_is_drawn_apart(self):
        waiting = next(t for t in plots.in_system(DONE).data if t.name == "waiting in the queue")
        assert (list(waiting.y), list(waiting.base), list(waiting.x)) == ([1], [0.5], [0.5])

    def test_the_number_ends_at_zero(self):
        times, counts = number_in_system(DONE)
        assert counts == [1, 2, 1, 0, 1, 0] and times[0] == 1.0


def test_saturation_draws_what_was_done_and_how_long_the_first_token_took():
    figure = plots.saturation(POINTS, POINTS[:1])
    require_readable(figure)
    left, right = [t for t in figure.data if t.name == "simulated"]
    assert list(left.y) == [2.0, 4.0, 4.0] and list(right.y) == [100.0, 500.0, 2000.0]
    assert {t.mode for t in figure.data if t.name == "measured"} == {"markers"}
    offered = next(t for t in figure.data if t.name == "offered")
    assert list(offered.y) == [5.0, 10.0, 15.0]


def test_each_promise_has_its_best_load():
    figure = plots.goodput_picker(POINTS, SLO(tpot=1.5), [0.2, 1.0, 4.0])
    require_readable(figure)
    assert "(simulated)" in figure.layout.title.text
    labels = [step.label for step in figure.layout.sliders[0].steps]
    assert [label.split("best load ")[1] for label in labels] == [
        "0.50, 2 good/s", "1.00, 4 good/s", "1.00, 4 good/s",
    ]  # fmt: skip
    good = [list(t.y) for t in figure.data if t.name.startswith("goodput")]
    assert good == [[2.0, 0.0, 0.0], [2.0, 4.0, 0.0], [2.0, 4.0, 4.0]]


def test_omission_draws_every_request_twice():
    figure = plots.omission([1.0, 3.0], [1.0, 0.5])
    require_readable(figure)
    assert [(list(t.x), list(t.y)) for t in figure.data] == [
        ([1, 2], [1.0, 3.0]), ([1, 2], [1.0, 0.5]),
    ]  # fmt: skip


def test_the_cheapest_token_in_time_is_marked_and_loads_without_one_are_left_out():
    figure = plots.token_cost([0.5, 1.0, 1.5], [4.0, 2.0, 1.0], [4.0, 3.0, None])
    require_readable(figure)
    lines = {t.name: (list(t.x), list(t.y)) for t in figure.data}
    assert lines["every token"] == ([0.5, 1.0, 1.5], [4.0, 2.0, 1.0])
    assert lines["a token in time"] == ([0.5, 1.0], [4.0, 3.0])
    assert lines["cheapest in time: 3 at load 1.00"] == ([1.0], [3.0])


def test_costs_without_any_token_in_time_can_be_drawn():
    require_readable(plots.token_cost([0.5], [4.0], [None]))


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plots.in_system([]), "at least one request"),
        (lambda: plots.in_system([RequestMetrics(0.0, None, (), 8)]), "must have a token"),
        (lambda: plots.saturation(POINTS, []), "at least one of each"),
        (lambda: plots.goodput_picker(POINTS, SLO(), []), "one limit"),
        (lambda: plots.omission([1.0], []), "two latencies for each"),
        (lambda: plots.token_cost([0.5], [1.0], []), "as many costs"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()
