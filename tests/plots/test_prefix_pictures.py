"""Chapter 16: growth with the length, layers apart, a chain of hashes, waits for a first token."""

import pytest

from llmserve_lab import plots
from llmserve_lab.course.length_sweep import LengthPoint
from llmserve_lab.course.lookup import Lookup
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable


def points(power):
    return [LengthPoint(n, n, n, n**power, n ** (power + 1), 0.1 * n) for n in (8, 16, 32)]


def lookup(tokens, digests, hits, label=""):
    return Lookup(label, tuple(tokens), tuple(digests), 4, hits, 0.01)


FIRST = lookup(range(14), ("aaaa", "bbbb", "cccc"), 0, "first")
OTHERS = [
    lookup([0, 1, 2, 3, 99, *range(5, 14)], ("aaaa", "dddd", "eeee"), 4, "token 4 changed"),
    lookup(range(14), ("aaaa", "bbbb", "cccc"), 12, "the same"),
]


class TestLengthGrowth:
    def test_each_line_carries_its_power(self):
        figure = plots.length_growth(points(1), points(2))
        require_readable(figure)
        names = [trace.name for trace in figure.data if trace.showlegend is not False]
        assert "weights, with the cache: n<sup>1.00</sup>" in names
        assert "attention, without the cache: n<sup>3.00</sup>" in names
        beside = {trace.name: trace.text[-1] for trace in figure.data if trace.text}
        assert beside["time without the cache"] == "without: n<sup>1.00</sup>"
        lower = next(t for t in figure.data if t.name == "time with the cache")
        assert [bool(part) for part in lower.text].count(True) == 1
        assert "with: n<sup>1.00</sup>" in lower.text and lower.textposition == "bottom right"
        assert set(beside) == {"time with the cache", "time without the cache"}
        assert "attention, without the cache grows with power 3.00" in describe(figure)

    def test_lines_are_told_apart_without_colour(self):
        left = [t for t in plots.length_growth(points(1), points(2)).data if t.xaxis == "x"]
        assert len(left) == 4 and len({t.name for t in left}) == 4
        assert {(t.line.dash, t.line.color) for t in left} == {
            (dash, colour) for dash in ("solid", "dash") for colour in {t.line.color for t in left}
        }

    def test_other_lengths_are_refused(self):
        with pytest.raises(ValueError, match="same two lengths"):
            plots.length_growth(points(1), points(2)[:-1])
        with pytest.raises(ValueError, match="same two lengths"):
            plots.length_growth(points(1)[:1], points(2)[:1])


CASES = {"here": [(0.0, 0.0), (0.5, 0.2)], "there": [(0.7, 0.0), (0.9, 0.4)]}


class TestLayerDistance:
    def test_a_bar_for_keys_and_one_for_values_in_each_layer(self):
        figure = plots.layer_distance(CASES)
        require_readable(figure)
        assert [list(trace.y) for trace in figure.data] == [[0, 50], [0, 20], [70, 90], [0, 40]]
        assert figure.data[0].text == ("equal", "") and figure.data[2].text == ("", "")
        patterns = {trace.name: trace.marker.pattern.shape for trace in figure.data}
        assert patterns["keys"] != patterns["values"]
        assert "there: layer 0: keys 70%, values 0%" in describe(figure)

    def test_nothing_is_refused(self):
        for cases in ({}, {"a": []}):
            with pytest.raises(ValueError, match="at least one case"):
                plots.layer_distance(cases)


class TestPrefixChain:
    def test_each_stop_shows_what_was_found_and_what_was_computed(self):
        figure = plots.prefix_chain(FIRST, OTHERS)
        require_readable(figure)
        slider = figure.layout.sliders[0]
        assert [step.label for step in slider.steps] == [
            "token 4 changed: 4 of 14 tokens found",
            "the same: 12 of 14 tokens found",
        ]
        for other, step in zip(OTHERS, slider.steps, strict=True):
            shown = [t for t, on in zip(figure.data, step.args[1], strict=True) if on]
            bars = {trace.name: trace for trace in shown if trace.type == "bar"}
            found = [base for base in bars["found"].base if bars["found"].x[0] is not None]
            assert found == list(range(0, other.hits, 4))
            assert list(bars["computed"].base) == list(range(other.hits, 14, 4))
            assert bars["found"].marker.pattern.shape != bars["computed"].marker.pattern.shape
            texts = [
                trace.text for trace in shown if trace.type == "scatter" and trace.mode == "text"
            ]
            assert texts == [FIRST.digests, other.digests]

    def test_the_first_token_that_differs_is_marked(self):
        figure = plots.prefix_chain(FIRST, OTHERS)
        marks = [trace.x[0] for trace in figure.data if trace.name == "first token that differs"]
        assert marks == [4.5, None]

    def test_it_is_told_in_words(self):
        words = describe(plots.prefix_chain(FIRST, OTHERS))
        assert "token 4 changed: 4 of 14 tokens found; the same: 12 of 14 tokens found." in words

    def test_nothing_to_compare_is_refused(self):
        with pytest.raises(ValueError, match="one more prompt"):
            plots.prefix_chain(FIRST, [])


class TestReuseWaits:
    def test_two_lines_in_milliseconds(self):
        figure = plots.reuse_waits({32: 0.01, 64: 0.02}, {32: 0.005, 64: 0.006})
        require_readable(figure)
        again, found = figure.data
        assert list(again.y) == [10, 20] and list(found.y) == [5, 6]
        assert again.line.dash != found.line.dash

    def test_other_lengths_are_refused(self):
        for computed, found in (({}, {}), ({32: 1.0}, {64: 1.0})):
            with pytest.raises(ValueError, match="same lengths"):
                plots.reuse_waits(computed, found)
