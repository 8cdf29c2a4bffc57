"""The pictures of chapter 02 draw what was measured, and refuse what they cannot draw."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_lab import plots
from llmserve_lab.course.async_device import Kernel
from llmserve_lab.engine.metrics import RequestMetrics
from llmserve_lab.plots.display import require_readable

TIMES = (1.5, 1.75, 2.5)
METRICS = {"one": RequestMetrics(0.0, 1.0, TIMES, 8), "two": RequestMetrics(2.0, 2.0, (3.0,), 8)}
KERNELS = [Kernel(1.0, 1.5, 2.0), Kernel(1.25, 2.0, 2.5)]


def stages(prompt: int, answer: int) -> tuple[float, float]:
    return prompt / 1000, float(answer - 1)


def bars(figure, visible=True):
    return {t.name: list(t.x) for t in figure.data if t.type == "bar" and t.visible is not False}


def test_the_stages_of_a_request_add_up_to_its_latency():
    figure = plots.latency_split(METRICS)
    require_readable(figure)
    found = bars(figure)
    assert found["prefill"] == [500.0, 1000.0]
    assert found["decode"] == [1000.0, 0.0]
    totals = [sum(stage[i] for stage in found.values()) for i in range(2)]
    assert totals == [1000 * m.e2e for m in METRICS.values()]


def test_a_queue_is_drawn_only_where_there_was_one():
    none = {"a": RequestMetrics(1.0, 1.0, TIMES, 8)}
    assert "waiting in the queue" not in bars(plots.latency_split(none))
    assert "waiting in the queue" in bars(plots.latency_split(METRICS))


def test_gaps_start_at_the_second_token_and_the_line_is_their_mean():
    figure = plots.token_gaps({"a stream": TIMES})
    require_readable(figure)
    points, mean = figure.data
    assert list(points.x) == [2, 3] and list(points.y) == [250.0, 750.0]
    assert set(mean.y) == {500.0} and "TPOT 500.0 ms" in mean.name


class TestPercentilePicker:
    values = tuple(np.random.default_rng(0).lognormal(size=200))

    def test_each_stop_draws_numpys_percentile_and_every_request_once(self):
        figure = plots.percentile_picker(self.values)
        require_readable(figure)
        for step in figure.layout.sliders[0].steps:
            percent = int(step.label.partition(":")[0])
            shown = [t for t, on in zip(figure.data, step.args[1], strict=True) if on]
            line = next(t for t in shown if (t.name or "").startswith(f"p{percent}:"))
            assert line.x[0] == pytest.approx(np.percentile(self.values, percent))
            counts = [y for t in shown if t.type == "bar" for y in t.y if y is not None]
            assert sum(counts) == len(self.values)

    def test_the_mean_is_at_every_stop(self):
        figure = plots.percentile_picker(self.values)
        mean = next(i for i, t in enumerate(figure.data) if t.name.startswith("mean"))
        assert figure.data[mean].x[0] == pytest.approx(np.mean(self.values))
        assert all(step.args[1][mean] for step in figure.layout.sliders[0].steps)

    def test_equal_values_can_be_drawn(self):
        require_readable(plots.percentile_picker([2.0, 2.0, 2.0]))


def test_the_device_lane_holds_each_kernel_from_its_start():
    figure = plots.device_timeline(KERNELS, 1.0, {"early": 0.25, "late": 1.5})
    require_readable(figure)
    kernels = next(t for t in figure.data if t.type == "bar")
    assert list(kernels.base) == [500.0, 1000.0] and list(kernels.x) == [500.0, 500.0]
    assert [t.x[0] for t in figure.data if ": " in t.name] == [250.0, 1500.0]


def test_the_what_if_is_calculated_and_each_stop_has_its_own_answer():
    figure = plots.latency_whatif(stages, prompts=(100, 200), outputs=(1, 5))
    require_readable(figure)
    assert "(calculated)" in figure.layout.title.text
    labels = [step.label for step in figure.layout.sliders[0].steps]
    assert labels == ["1 token", "5 tokens"]
    decode = [list(t.x) for t in figure.data if t.name == "decode"]
    assert decode == [[0.0, 0.0], [4.0, 4.0]]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plots.latency_split({}), "at least one request"),
        (lambda: plots.latency_split({"x": RequestMetrics(0.0, None, (), 8)}), "'x' has no token"),
        (lambda: plots.token_gaps({}), "1 to 4 streams"),
        (lambda: plots.token_gaps({"x": [1.0]}), "'x' has no gap"),
        (lambda: plots.percentile_picker([]), "at least one value"),
        (lambda: plots.percentile_picker([0.0, 1.0]), "above 0"),
        (lambda: plots.device_timeline([], 0.0, {}), "at least one kernel"),
        (lambda: plots.latency_whatif(stages, prompts=()), "at least one prompt"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()
