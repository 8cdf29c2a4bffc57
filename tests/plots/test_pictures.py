"""Each picture draws what the trace says, and nothing that it does not."""

from __future__ import annotations

import itertools

import plotly.graph_objects as go
import pytest

from llmserve_lab import plots
from llmserve_lab.engine.trace import Trace
from llmserve_lab.plots import theme
from llmserve_lab.plots.cells import map_cells, table_cells
from llmserve_lab.plots.display import require_readable
from llmserve_lab.plots.stepping import MAX_STOPS, stops
from llmserve_lab.plots.timeline import request_order, request_spans

SIZES = (1, 4, 16, 32)
ROWS = [
    {"batch_size": b, "latency": 0.1 * b, "throughput": 2.0 * b, "kv_mib": 0.5 * b} for b in SIZES
]


def calculate(gpu: str, batch_size: int) -> dict[str, float]:
    capacity = {"small": 16.0, "large": 80.0}[gpu]
    memory = 14.0 + batch_size
    return {
        "latency_ms": 20.0,
        "throughput": batch_size * 50.0,
        "memory_gib": memory,
        "capacity_gib": capacity,
    }


@pytest.mark.parametrize("draw", [plots.request_timeline, plots.kv_block_map, plots.step_times])
def test_trace_pictures_are_readable_and_ask_a_question(draw, trace):
    figure = draw(trace)
    require_readable(figure)
    assert figure.layout.title.text.endswith("?")


@pytest.mark.parametrize("draw", [plots.request_timeline, plots.kv_block_map, plots.step_times])
def test_an_empty_trace_is_refused_in_one_sentence(draw):
    with pytest.raises(ValueError, match="trace=True"):
        draw(Trace())


def test_spans_cover_each_request_without_overlap(trace):
    steps = list(trace)
    by_request: dict[str, list] = {}
    for span in request_spans(steps):
        by_request.setdefault(span.request_id, []).append(span)
    assert list(by_request) == request_order(steps) == [str(i) for i in range(6)]
    for spans in by_request.values():
        spans.sort(key=lambda span: span.start)
        for before, after in itertools.pairwise(spans):
            assert after.start == pytest.approx(before.end)
    kinds = {request: [span.kind for span in spans] for request, spans in by_request.items()}
    assert kinds["0"] == ["prefill", "decode"]
    assert kinds["5"] == ["queue", "prefill", "decode"]


def test_timeline_has_a_tick_for_each_token(trace):
    figure = plots.request_timeline(trace)
    ticks = next(t for t in figure.data if t.name == "a token" and t.showlegend is not None)
    assert len(ticks.x) == sum(len(step.sampled) for step in trace)


def test_each_slider_stop_shows_its_own_traces_only(trace):
    figure = plots.kv_block_map(trace)
    steps = figure.layout.sliders[0].steps
    assert len(steps) == len(trace)
    shown = [step.args[1] for step in steps]
    assert all(len(row) == len(figure.data) for row in shown)
    for column in zip(*shown, strict=True):
        assert sum(column) in (1, len(steps))  # one stop's, or always on
    assert [trace.visible for trace in figure.data] == list(shown[figure.layout.sliders[0].active])


def test_map_cells_show_every_used_block_once(trace):
    step = max(trace, key=lambda s: s.num_blocks_used)
    names = {name: i for i, name in enumerate(request_order(list(trace)))}
    cells = map_cells(step, names, len(step.block_refs))
    written = sum(
        x
        for x, hover, pattern in zip(cells.x, cells.hover, cells.pattern, strict=True)
        if "slots written" in hover and not pattern
    )
    labels = [text for text in cells.text if text]
    assert len(labels) == step.num_blocks_used  # each used block carries its owner's number
    slots = sum(view.num_computed_tokens for view in step.running)
    assert written == pytest.approx(0.92 * slots / step.block_size, rel=1e-3)
    hatched = [p for p in cells.pattern if p == theme.WASTE.pattern]
    partial = [v for v in step.running if v.num_computed_tokens % step.block_size]
    assert len(hatched) == len(partial)
    assert sum(1 for hover in cells.hover if "free" in hover) == step.block_refs.count(0)


def test_table_cells_are_the_block_tables(trace):
    step = max(trace, key=lambda s: s.num_blocks_used)
    names = {name: i for i, name in enumerate(request_order(list(trace)))}
    cells = table_cells(step, names)
    expected = [str(b) for view in step.running for b in view.block_table]
    assert sorted(cells.text, key=int) == sorted(expected, key=int)


def test_step_times_puts_each_step_under_its_kind(trace):
    figure = plots.step_times(trace)
    bars = {t.name: dict(zip(t.x, t.y, strict=True)) for t in figure.data}
    assert sum(map(len, bars.values())) == len(trace)
    assert bars["prefill"] == {0: pytest.approx(trace[0].seconds * 1e3)}
    assert all(s.num_tokens == len(s.scheduled) for s in trace if s.step in bars["decode"])


def test_long_traces_are_sampled_with_both_ends():
    assert stops(5) == [0, 1, 2, 3, 4]
    chosen = stops(1000)
    assert (chosen[0], chosen[-1]) == (0, 999)
    assert len(chosen) <= MAX_STOPS


def test_tradeoff_panels_draw_measurement_solid_and_guess_hollow():
    figure = plots.tradeoff_panels(ROWS, {"throughput": (32, 40.0)})
    require_readable(figure)
    measured = [t for t in figure.data if t.name == "measured"]
    assert [list(t.y) for t in measured] == [
        [row[name] for row in ROWS] for name in ("latency", "throughput", "kv_mib")
    ]
    (guess,) = [t for t in figure.data if t.name == "your guess"]
    assert (guess.x[0], guess.y[0], guess.marker.symbol) == (32, 40.0, "diamond-open")
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.xaxis.ticktext == ("1", "4", "16", "32")


@pytest.mark.parametrize(
    ("rows", "guess", "words"),
    [
        ([], None, "at least one row"),
        ([{"batch_size": 1}], None, "latency"),
        (ROWS, {"speed": (1, 1.0)}, "no panel 'speed'"),
    ],
)
def test_tradeoff_panels_say_what_is_wrong(rows, guess, words):
    with pytest.raises(ValueError, match=words):
        plots.tradeoff_panels(rows, guess)


def test_whatif_menu_shows_one_gpu_and_crosses_out_what_does_not_fit():
    figure = plots.whatif_triangle(calculate, ["small", "large"], batch_sizes=(1, 8))
    require_readable(figure)
    assert "calculated" in figure.layout.title.text
    buttons = figure.layout.updatemenus[0].buttons
    assert [b.label for b in buttons] == ["small", "large"]
    for button in buttons:
        shown = [t for t, on in zip(figure.data, button.args[0]["visible"], strict=True) if on]
        assert {t.name.split(" holds")[0] for t in shown if t.x[0] is not None} == {button.label}
    memory = next(t for t in figure.data if t.name == "small" and t.xaxis == "x3")
    assert memory.marker.pattern.shape == ("", theme.REJECTED.pattern)


def test_whatif_names_the_field_that_the_function_leaves_out():
    with pytest.raises(ValueError, match="memory_gib"):
        plots.whatif_triangle(lambda gpu, b: {"latency_ms": 1, "throughput": 1}, ["any"])


def test_pictures_are_plain_figures(trace):
    assert type(plots.step_times(trace)) is go.Figure  # never a FigureWidget
