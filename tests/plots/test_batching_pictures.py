"""The pictures of chapter 19 draw the runs that they are given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llmserve_lab import plots
from llmserve_lab.course.step_run import Life, StepRun
from llmserve_lab.engine.trace import Trace
from llmserve_lab.plots.display import require_readable
from llmserve_lab.plots.schedule_gantt import places_taken

STATIC = (Life(0, 0, 1, 2), Life(0, 0, 1, 4), Life(1, 4, 5, 5), Life(1, 4, 5, 7))
CONTINUOUS = (Life(0, 0, 1, 2), Life(0, 0, 1, 4), Life(1, 2, 3, 3), Life(1, 3, 4, 6))


def run(lives):
    return StepRun(2, lives, (), (), 0, 0, 0, 2, Trace())


RUNS = {"static": run(STATIC), "continuous": run(CONTINUOUS)}


def bars(figure, name):
    """(panel, row) -> (begin, end) of the bars of one kind."""
    found = {}
    for trace in figure.data:
        if trace.name == name:
            for row, begin, length in zip(trace.y, trace.base, trace.x, strict=False):
                found[trace.yaxis, row] = (begin, begin + length)
    return found


class TestGantt:
    def test_every_request_waits_reads_and_decodes_as_it_did(self):
        figure = plots.schedule_gantt(RUNS)
        require_readable(figure)
        assert bars(figure, "decode")["y", 1] == (1, 4)
        assert bars(figure, "waiting in the queue")["y", 2] == (1, 4)
        assert bars(figure, "waiting in the queue")["y2", 2] == (1, 2)
        assert bars(figure, "prefill")["y2", 3] == (3, 4)

    def test_a_place_is_empty_until_the_next_one_takes_it(self):
        figure = plots.schedule_gantt(RUNS)
        assert bars(figure, "place empty") == {
            ("y", 0): (2, 4),
            ("y", 2): (5, 7),
            ("y2", 1): (4, 6),
        }

    def test_whoever_starts_takes_the_place_that_was_free_longest(self):
        assert places_taken(STATIC, 2, 7) == [4, 4, 7, 7]
        assert places_taken(CONTINUOUS, 2, 6) == [2, 6, 3, 6]
        assert places_taken(CONTINUOUS, 4, 6) == [6, 6, 6, 6]  # nobody's place is needed

    def test_the_slider_marks_one_step_in_all_panels(self):
        figure = plots.schedule_gantt(RUNS, start=3)
        (slider,) = figure.layout.sliders
        labels = [step.label for step in slider.steps]
        assert len(labels) == 7 and slider.active == 3
        assert labels[3] == ("3. static: 1 of 2 places, 2 wait; continuous: 2 of 2 places, 0 wait")
        shown = [trace for trace in figure.data if trace.visible and trace.type == "scatter"]
        assert [(trace.yaxis, trace.x[0]) for trace in shown] == [("y", 3), ("y2", 3)]

    def test_it_has_one_axis_of_steps(self):
        figure = plots.schedule_gantt(RUNS)
        assert figure.layout.xaxis.matches == "x2"
        assert figure.layout.xaxis.range == figure.layout.xaxis2.range

    def test_it_is_told_in_words(self):
        alt = plots.schedule_gantt(RUNS).layout.meta["alt"]
        assert "static: 4 requests are done after step 7; 2 times a place is empty" in alt
        assert "continuous: 4 requests are done after step 6; 0 times" in alt

    def test_runs_of_other_requests_are_refused(self):
        with pytest.raises(ValueError, match="same requests"):
            plots.schedule_gantt({"a": run(STATIC), "b": run(STATIC[:2])})
        with pytest.raises(ValueError, match="one run or more"):
            plots.schedule_gantt({})


def test_waits_are_drawn_by_arrival_with_the_promise():
    figure = plots.first_waits({"static": [1, 9, 12], "continuous": [1, 2, 1]}, promise=8)
    require_readable(figure)
    assert [list(trace.y) for trace in figure.data] == [[1, 9, 12], [1, 2, 1]]
    assert figure.data[0].line.dash != figure.data[1].line.dash
    assert "static: from 1 to 12 steps, 1 of 3 within 8." in figure.layout.meta["alt"]
    assert figure.layout.shapes[0].y0 == 8


def test_waits_of_other_requests_are_refused():
    for waits in ({}, {"a": [1], "b": [1, 2]}, {key: [1] for key in "abcd"}):
        with pytest.raises(ValueError, match="first_waits draws"):
            plots.first_waits(waits, 8)


def test_gains_are_drawn_beside_the_formula_and_the_guess():
    figure = plots.spread_gain({0: 1.0, 0.5: 1.3}, {0: 1.0, 1: 1.8}, guess=(0.5, 3.0))
    require_readable(figure)
    named = {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}
    assert named["measured"] == ([0, 0.5], [1.0, 1.3])
    assert named["your guess"] == ([0.5], [3.0])
    assert figure.layout.yaxis.range[1] > 3
    assert "your guess" not in {t.name for t in plots.spread_gain({0: 1.0}, {0: 1.0}).data}
    with pytest.raises(ValueError, match="measured"):
        plots.spread_gain({}, {0: 1.0})


def test_waits_over_the_rate_are_on_a_log_axis():
    figure = plots.keeping_up({"static": {1: 0.5, 2: 30}, "continuous": {1: 0.1, 2: 0.2}}, 1)
    require_readable(figure)
    assert [list(trace.x) for trace in figure.data] == [[1, 2], [1, 2]]
    assert figure.layout.yaxis.type == "log" and figure.layout.shapes[0].y0 == 1
    assert figure.layout.annotations[0].y == 0  # log10 of the promise
    with pytest.raises(ValueError, match="1 to 4 series"):
        plots.keeping_up({}, 1)


def test_a_run_that_only_looks_like_one_is_drawn_too():
    """The picture needs no more than lives, places and counts."""
    one = run(STATIC)
    like = SimpleNamespace(
        lives=STATIC, slots=2, end=7, wasted=2, running=one.running, waiting=one.waiting
    )
    assert len(plots.schedule_gantt({"like": like}).data) == 4 + 7
