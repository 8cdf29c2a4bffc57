"""The pictures of chapter 11 draw what they are given, and say what they cannot draw."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llmserve_lab import plots
from llmserve_lab.course.belief_change import BeliefChange
from llmserve_lab.plots.belief_shift import OUTCOMES, outcome
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable

SURE = BeliefChange("1 latency", "agree", 90, tries=1, solved=True)
LATER = BeliefChange("2 parallel", "disagree", 70, tries=3, solved=True)
WRONG = BeliefChange("3 context", "partly", 100, tries=2)
NOTHING = BeliefChange("4 optional")


def shown_at(figure, stop):
    on = figure.layout.sliders[0].steps[stop].args[1]
    return [trace for trace, visible in zip(figure.data, on, strict=True) if visible]


class TestBeliefShift:
    def test_before_and_after_of_each(self):
        figure = plots.belief_shift([SURE, LATER, WRONG, NOTHING])
        require_readable(figure)
        before, after = figure.data[:2]
        assert dict(zip(before.y, before.x, strict=True)) == {
            "1 latency": 90, "2 parallel": 30, "3 context": 50,
        }  # fmt: skip
        assert list(after.y) == ["1 latency", "2 parallel", "3 context", "4 optional"]
        assert list(after.x) == [3, 2, 1, 0]
        assert not figure.layout.annotations

    def test_the_slider_rings_one_belief_and_says_it_in_words(self):
        figure = plots.belief_shift([SURE, NOTHING])
        labels = [step.label for step in figure.layout.sliders[0].steps]
        assert labels == [
            "1 latency: before: agree, 90% sure; after: right at the first try",
            "4 optional: before: no answer before; after: not answered yet",
        ]
        rings = [[(r.x[0], r.y[0]) for r in shown_at(figure, stop)[2:]] for stop in (0, 1)]
        assert rings == [[(90, "1 latency"), (3, "1 latency")], [(0, "4 optional")]]

    def test_with_nothing_recorded_it_says_so_and_can_be_shown(self):
        figure = plots.belief_shift([NOTHING, BeliefChange("5 batch")])
        require_readable(figure)
        assert "no belief recorded yet" in figure.layout.annotations[0].text
        assert describe(figure).endswith("Nothing is recorded yet.")

    def test_answers_without_a_belief_are_told_all_the_same(self):
        figure = plots.belief_shift([BeliefChange("5 batch", tries=1, solved=True)])
        assert "no answer before; after: right at the first try" in describe(figure)

    def test_every_outcome_has_its_column(self):
        assert [outcome(c) for c in (NOTHING, WRONG, LATER, SURE)] == list(OUTCOMES)

    def test_no_beliefs_are_refused(self):
        with pytest.raises(ValueError, match="at least one belief"):
            plots.belief_shift([])


PASSES = [[7, 8, 8], [7, 3, 8], [7, 3, 5], [7, 3, 5]]
TEXTS = ["a", "ab", "abc", "abc"]


class TestParallelGuesses:
    def test_right_and_wrong_cells(self):
        figure = plots.parallel_guesses(PASSES, TEXTS)
        require_readable(figure)
        right, wrong = figure.data[:2]
        assert set(zip(wrong.customdata, wrong.y, strict=True)) == {(2, 1), (3, 1), (3, 2)}
        assert len(right.x) + len(wrong.x) == 12
        labels = [step.label for step in figure.layout.sliders[0].steps]
        assert labels[0] == "1: 1 of 3 as in the end: 'a'"
        assert "4 passes over 3 places; right after each: 1, 2, 3, 3." in describe(figure)

    def test_a_long_text_is_cut_above_the_slider(self):
        figure = plots.parallel_guesses(PASSES, ["x" * 30, "y" * 500, "abc", "abc"])
        first, second, *_ = [step.label for step in figure.layout.sliders[0].steps]
        assert first.endswith("x" * 30 + "'")
        assert second.endswith("yyy...") and len(second) < 72

    def test_right_from_the_first_pass_on(self):
        figure = plots.parallel_guesses([[1, 2]], ["x"])
        require_readable(figure)
        assert list(figure.data[1].x) == [None]

    @pytest.mark.parametrize(
        ("passes", "texts"), [([], []), ([[1], [1, 2]], ["a", "b"]), ([[1]], ["a", "b"])]
    )
    def test_what_cannot_be_drawn_is_refused(self, passes, texts):
        with pytest.raises(ValueError, match="the same places, and a text for each"):
            plots.parallel_guesses(passes, texts)


def run(done, good):
    """goodput: what of `done` keeps each pace."""
    return SimpleNamespace(request_throughput=done, goodput=lambda slo: good[slo.tpot])


class TestLimitGoodput:
    def test_the_slider_moves_the_best_limit(self):
        runs = {4: run(1.0, {0.05: 1.0, 0.1: 1.0}), 16: run(2.0, {0.05: 0.25, 0.1: 1.5})}
        figure = plots.limit_goodput(runs, [0.05, 0.1])
        require_readable(figure)
        assert "(simulated)" in figure.layout.title.text
        assert list(figure.data[0].y) == [1.0, 2.0]
        strict, loose = shown_at(figure, 0), shown_at(figure, 1)
        assert list(strict[1].y) == [1.0, 0.25] and list(loose[1].y) == [1.0, 1.5]
        assert (strict[2].x[0], loose[2].x[0]) == (4, 16)
        assert "100 ms a token: limit 16, 1.50 good requests/s" in describe(figure)

    def test_nothing_to_draw_is_refused(self):
        with pytest.raises(ValueError, match="one run and one pace"):
            plots.limit_goodput({}, [0.1])
