"""The pictures of chapter 03 draw what they are given, and say what they cannot draw."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from llmserve_lab import plots
from llmserve_lab.course.late_arrival import LateArrival
from llmserve_lab.course.prefill_times import PrefillCurve
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable

TIMES = {100: 0.11, 2000: 6.0}
CURVE = PrefillCurve(0.0, 1e-3, 1e-6)


def weights(heads=2, tokens=3):
    lower = np.tril(np.ones((heads, tokens, tokens)))
    return lower / lower.sum(-1, keepdims=True)


def run_of(trace, budget, first, last):
    return LateArrival(budget, tuple(trace.steps[:8]), first, last, 1000, ((1,),))


class TestAttentionMap:
    def test_a_stop_per_head_and_no_cell_in_the_future(self):
        figure = plots.attention_map(weights(), ["a", " b", "\n"])
        require_readable(figure)
        assert [step.label[0] for step in figure.layout.sliders[0].steps] == ["1", "2"]
        assert figure.layout.sliders[0].currentvalue.prefix == "head "
        empty, *heads = figure.data
        for trace in (empty, *heads):
            assert list(zip(trace.y, (round(base + 0.46) for base in trace.base), strict=True)) == [
                (0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2),
            ]  # fmt: skip
        for trace in heads:
            filled = [x / whole for x, whole in zip(trace.x, empty.x, strict=True)]
            assert filled == pytest.approx([1, 1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])
        assert "Head 2: the last token takes 33%" in describe(figure)

    def test_texts_must_fit(self):
        with pytest.raises(ValueError, match="a text for each token"):
            plots.attention_map(weights(), ["a"])


class TestPrefillCurve:
    def test_points_fit_and_crossover(self):
        figure = plots.prefill_curve(TIMES, CURVE, guess=50_000)
        require_readable(figure)
        points = next(t for t in figure.data if t.name == "measured")
        assert list(points.y) == [110, 6000]
        fit = next(t for t in figure.data if t.name.startswith("fit"))
        assert fit.y[-1] == pytest.approx(6000)
        notes = [note.text for note in figure.layout.annotations]
        assert notes == ["both parts equal: 1,000 tokens", "your guess: 50,000 tokens \u2192"]
        assert len(figure.layout.shapes) == 1  # the guess lies beyond the axis

    def test_no_bend_is_said(self):
        figure = plots.prefill_curve(TIMES, PrefillCurve(0.0, 1e-3, 0.0))
        assert figure.layout.annotations[0].text.startswith("both parts equal: never")

    def test_nothing_measured_is_refused(self):
        with pytest.raises(ValueError, match="at least one prompt length"):
            plots.prefill_curve({}, CURVE)


class TestCostRatios:
    def test_counted_and_measured_are_told_apart(self):
        figure = plots.cost_ratios({"steps": 256.0}, {"time": 30.0}, "a / b", "What does it cost?")
        require_readable(figure)
        assert [(t.name, list(t.y), list(t.x)) for t in figure.data] == [
            ("counted", ["steps"], [256.0]), ("measured", ["time"], [30.0]),
        ]  # fmt: skip
        assert list(figure.layout.xaxis.tickvals) == [1, 10, 100]

    @pytest.mark.parametrize("counted", [{}, {"steps": 0.0}])
    def test_what_has_no_logarithm_is_refused(self, counted):
        with pytest.raises(ValueError, match="above 0"):
            plots.cost_ratios(counted, {}, "a / b", "What?")


class TestArrivalSteps:
    def test_a_stop_per_budget_with_every_step_once(self, trace):
        runs = [run_of(trace, 64, 3, 4), run_of(trace, 8, 2, 5)]
        figure = plots.arrival_steps(runs)
        require_readable(figure)
        slider = figure.layout.sliders[0]
        assert [step.label.split()[0] for step in slider.steps] == ["64", "8"]
        for run, stop in zip(runs, slider.steps, strict=True):
            shown = [t for t, on in zip(figure.data, stop.args[1], strict=True) if on]
            drawn = {x: y for t in shown for x, y in zip(t.x, t.y, strict=True) if x is not None}
            assert sorted(drawn) == [i - run.first + 1 for i in range(len(run.steps))]
            assert drawn[1] == pytest.approx(1000 * run.steps[run.first].seconds)
        assert "Budget 64: steps 2, TTFT" in describe(figure)

    def test_no_run_is_refused(self):
        with pytest.raises(ValueError, match="at least one run"):
            plots.arrival_steps([])


class TestAttentionShare:
    def test_a_line_and_a_diamond_per_model(self):
        figure = plots.attention_share({"m": lambda n: n / (n + 1000)}, {"m": 1000})
        require_readable(figure)
        assert "calculated" in figure.layout.title.text
        line, half = figure.data
        assert (line.x[0], line.x[-1]) == (64, 2**18)
        assert line.y[0] == pytest.approx(100 * 64 / 1064)
        assert (half.x[0], half.y[0]) == (1000, 50)

    def test_each_model_needs_its_crossover(self):
        with pytest.raises(ValueError, match="a crossover for each"):
            plots.attention_share({"m": lambda n: 0.5}, {})


def test_late_arrivals_tell_their_numbers():
    step = SimpleNamespace(num_tokens=5, started=0.0, seconds=0.1)
    late = SimpleNamespace(num_tokens=9, started=0.1, seconds=0.3)
    run = LateArrival(16, (step, late), 1, 1, 10, ())
    assert (run.prefill_steps, run.largest_step) == (1, 9)
    assert run.first_token_ms == pytest.approx(300) == pytest.approx(run.longest_gap_ms)
