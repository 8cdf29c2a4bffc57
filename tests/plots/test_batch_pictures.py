"""The pictures of chapter 08 draw what they are given, and say what is not measured."""

from __future__ import annotations

import pytest

from llmserve_lab import plots
from llmserve_lab.course.batch_sweep import BatchPoint
from llmserve_lab.course.step_cost import StepCost
from llmserve_lab.engine.metrics import RequestMetrics
from llmserve_lab.plots.display import require_readable
from llmserve_lab.simulate import Ask, LoadResult, Outcome

COST = StepCost(0.004, 0.001)
SIZES = (1, 2, 4, 8)
POINTS = [BatchPoint(b, 10, COST.seconds(b), 1000 + 10 * b, 50 * b, 12) for b in SIZES]


def result(ttft: float) -> LoadResult:
    metrics = RequestMetrics(0.0, 0.0, (ttft, ttft + 1.0), 8)
    return LoadResult((Outcome(Ask(0.0, 8, 2), "0", "length", metrics),), 0.0, 2.0, 9, 10, 1)


def test_the_curve_has_the_points_the_line_and_the_knee():
    figure = plots.batch_curve(POINTS, COST)
    require_readable(figure)
    rates, times = [t for t in figure.data if t.name == "measured"]
    assert list(rates.y) == pytest.approx([b / COST.seconds(b) for b in SIZES])
    assert list(times.y) == pytest.approx([1000 * COST.seconds(b) for b in SIZES])
    knees = [t for t in figure.data if t.name.startswith("knee")]
    assert [list(t.x) for t in knees] == [[4.0, 4.0]] * 2
    assert not any(t.name.startswith("knee") for t in plots.batch_curve(POINTS[:2], COST).data)


def test_reads_are_shared_weights_and_each_requests_own():
    figure = plots.token_reads({"short": POINTS}, 1000, {"short": 10})
    require_readable(figure)
    lines = {t.name: list(t.y) for t in figure.data}
    assert lines["weights / batch"] == [1000, 500, 250, 125]
    assert lines["KV, short"] == [10] * 4
    assert lines["both, short (counted)"] == [1010, 510, 260, 135]


def test_each_promise_has_its_best_batch():
    figure = plots.promise_picker(POINTS, COST, [0.001, 0.0061, 1.0])
    require_readable(figure)
    labels = [step.label for step in figure.layout.sliders[0].steps]
    assert [label.split(": ")[1].split(",")[0] for label in labels] == [
        "no batch", "batch 2", "batch 8",
    ]  # fmt: skip
    rings = [t for t in figure.data if t.marker.symbol == "circle-open"]
    assert [t.x[0] for t in rings] == [None, POINTS[1].tpot_ms, POINTS[3].tpot_ms]


def test_limits_are_drawn_for_each_load_and_the_best_is_named():
    runs = {0.5: {2: result(0.5), 8: result(0.25)}, 1.0: {2: result(2.0), 8: result(4.0)}}
    figure = plots.limit_curves(runs)
    require_readable(figure)
    assert "(simulated)" in figure.layout.title.text
    labels = [step.label for step in figure.layout.sliders[0].steps]
    assert [label.rsplit(" ", 1)[1] for label in labels] == ["8", "2"]
    first = [list(t.y) for t in figure.data if t.name.startswith("first token")]
    assert first == [[500.0, 250.0], [2000.0, 4000.0]]


def test_gpus_end_where_their_rows_end():
    def calculate(gpu, context):
        return [
            {"batch": b, "tpot_ms": 5.0 + b, "tokens_per_second": 100.0 * b, "bound": bound}
            for b, bound in ((1, "weights"), (context // 100, "KV cache"))
        ]

    figure = plots.gpu_tradeoff(calculate, ["A", "B"], [200, 800])
    require_readable(figure)
    assert "(calculated)" in figure.layout.title.text
    lines = [t for t in figure.data if t.name in ("A", "B")]
    assert [t.text[-1] for t in lines] == [
        "A, batch 2", "B, batch 2", "A, batch 8", "B, batch 8",
    ]  # fmt: skip
    assert list(lines[0].marker.symbol) == ["circle", "diamond"]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plots.batch_curve(POINTS[:1], COST), "two batch sizes"),
        (lambda: plots.token_reads({"a": POINTS}, 1, {"b": 1}), "same cases"),
        (lambda: plots.promise_picker(POINTS, COST, []), "one limit"),
        (lambda: plots.limit_curves({1.0: {2: result(1)}, 2.0: {4: result(1)}}), "same limits"),
        (lambda: plots.gpu_tradeoff(lambda g, c: [], ["A"], [1]), "at least one batch"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()
