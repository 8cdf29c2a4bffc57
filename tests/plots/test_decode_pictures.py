"""The pictures of chapter 04 draw what they are given, and say what they cannot draw."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llmserve_lab import plots
from llmserve_lab.course.machine_use import Use
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable
from llmserve_lab.plots.roofline import si

USES = [
    Use("decode", 1, flops=1e9, num_bytes=2e9, seconds=0.5),  # 0.5 a byte, 2 GFLOP/s
    Use("prefill", 64, flops=1e11, num_bytes=1e9, seconds=2.0),  # 100 a byte, 50 GFLOP/s
]


def shown_at(figure, stop):
    on = figure.layout.sliders[0].steps[stop].args[1]
    return [trace for trace, visible in zip(figure.data, on, strict=True) if visible]


class TestRoofline:
    def test_roof_points_and_the_way_up(self):
        figure = plots.roofline(1e10, 1e11, USES)
        require_readable(figure)
        roof, prefill, decode = figure.data[:3]
        assert roof.x[1] == 10 and list(roof.y[1:]) == [1e11, 1e11]
        assert roof.y[0] == pytest.approx(1e10 * roof.x[0])
        assert (list(prefill.x), list(prefill.y)) == ([100], [5e10])
        assert (list(decode.x), list(decode.y)) == ([0.5], [2e9])
        way = shown_at(figure, 0)[-1]
        assert list(way.y) == [2e9, 5e9]  # memory's slope is above it
        assert list(shown_at(figure, 1)[-1].y) == [5e10, 1e11]
        labels = [step.label for step in figure.layout.sliders[0].steps]
        assert labels[0].startswith("decode, 1 request: 0.5 operations a byte, 2 GFLOP/s; 40%")
        assert "Prefill, 64 tokens" in describe(figure)

    def test_nothing_measured_is_refused(self):
        with pytest.raises(ValueError, match="at least one use"):
            plots.roofline(1.0, 1.0, [])


GPUS = {"a": SimpleNamespace(bandwidth=1e12, flops=1e14)}


class TestGpuRoofs:
    def test_the_step_stands_on_each_roof(self):
        figure = plots.gpu_roofs(GPUS, float, lambda name, size: 1.5, (4, 400))
        require_readable(figure)
        assert "calculated" in figure.layout.title.text
        points = [shown_at(figure, stop)[-1] for stop in (0, 1)]
        assert [(p.x[0], p.y[0]) for p in points] == [(4, 4e12), (400, 1e14)]
        assert points[0].customdata[0] == "a, batch 4: 1.50 ms a step, 4 TFLOP/s"
        labels = [step.label for step in figure.layout.sliders[0].steps]
        assert labels[0].endswith("on none of them") and labels[1].endswith("decides on a")
        assert "Batch 400" in describe(figure)

    def test_no_gpu_is_refused(self):
        with pytest.raises(ValueError, match="at least one GPU"):
            plots.gpu_roofs({}, float, lambda name, size: 1.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1 "), (1000, "1,000 "), (2.5e9, "2.5 G"), (1e15, "1 P"), (3e7, "30 M")],
)
def test_prefixes(value, text):
    assert si(value) == text


class TestInfluence:
    def test_each_stop_shows_its_own_change(self):
        figure = plots.influence({0: [1.0, 2.0, 3.0], 2: [0.0, 0.0, 4.0]}, ["a", "b", "c"])
        require_readable(figure)
        bars, mark = shown_at(figure, 1)
        assert list(bars.y) == [0, 0, 4] and list(mark.x) == [3, 3]
        label = figure.layout.sliders[0].steps[1].label
        assert label == "3 ('c'): 2 predictions as before, 1 changed"
        assert "Changed token 1 ('a'): 0 predictions as before" in describe(figure)

    @pytest.mark.parametrize("changes", [{}, {0: [1.0]}])
    def test_what_does_not_fit_is_refused(self, changes):
        with pytest.raises(ValueError, match="a number for each token"):
            plots.influence(changes, ["a", "b"])


class TestDraftPasses:
    def test_given_up_wasted_down(self):
        figure = plots.draft_passes([2, 0], guessed=3)
        require_readable(figure)
        assert {t.name: list(t.y) for t in figure.data} == {
            "guessed, kept": [2, 0],
            "the large model's own": [1, 1],
            "guessed, thrown away": [-1, -3],
        }
        assert "2 passes gave 4 tokens" in describe(figure)

    @pytest.mark.parametrize("kept", [[], [4]])
    def test_what_cannot_be_is_refused(self, kept):
        with pytest.raises(ValueError, match="kept 0 to 3"):
            plots.draft_passes(kept, guessed=3)
