"""Memory as bars and as lines: what is drawn is what was given."""

import pytest

from llmserve_lab import plots
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable

MIB, GIB = 2**20, 2**30
ROWS = {
    "one": {"weights": 22 * MIB, "kv": 10 * MIB, "activation": 1 * MIB},
    "two": {"weights": 22 * MIB, "kv": 40 * MIB, "activation": 2 * MIB},
}
MODELS = {"wide": (12 * GIB, 512 * 1024), "narrow": (13 * GIB, 8 * 1024)}


def test_bars_are_stacked_from_their_parts_in_one_unit():
    figure = plots.memory_bars(ROWS, capacity=64 * MIB)
    require_readable(figure)
    parts = {trace.name: list(trace.x) for trace in figure.data if trace.type == "bar"}
    assert parts == {"weights": [22, 22], "KV cache": [10, 40], "activation": [1, 2]}
    assert figure.layout.barmode == "stack" and "MiB" in figure.layout.xaxis.title.text
    (line,) = [trace for trace in figure.data if trace.type == "scatter"]
    assert set(line.x) == {64} and "64 MiB" in line.name
    shapes = [trace.marker.pattern.shape for trace in figure.data if trace.type == "bar"]
    assert len(set(shapes)) == 3


def test_large_sizes_are_told_in_gib():
    figure = plots.memory_bars({"one": {"weights": 12 * GIB, "kv": GIB, "activation": 0}})
    assert "GiB" in figure.layout.xaxis.title.text and figure.data[0].x == (12,)


@pytest.mark.parametrize(
    ("rows", "words"), [({}, "at least one row"), ({"a": {"weights": 1, "kv": 1}}, "no 'activ")]
)
def test_bars_say_what_is_wrong(rows, words):
    with pytest.raises(ValueError, match=words):
        plots.memory_bars(rows)


def test_lines_meet_the_weights_where_the_context_costs_as_much():
    figure = plots.context_growth(MODELS)
    require_readable(figure)
    assert figure.layout.title.text.endswith("(calculated)")
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines"}
    assert set(lines) == set(MODELS)
    at = dict(zip(lines["wide"].x, lines["wide"].y, strict=True))
    assert at[2048] == 1.0  # GiB
    marks = [trace.x[0] for trace in figure.data if trace.mode != "lines"]
    labels = [trace.textposition for trace in figure.data if trace.mode != "lines"]
    assert labels == ["top left", "bottom right"]  # the lowest line's, clear of the one above
    assert marks == [12 * GIB // (512 * 1024), 13 * GIB // (8 * 1024)]
    assert len({trace.line.dash for trace in lines.values()}) == 2
    assert "24,576 tokens" in describe(figure)


@pytest.mark.parametrize(("models", "words"), [({}, "at least one"), ({"a": (0, 1)}, "above 0")])
def test_lines_say_what_is_wrong(models, words):
    with pytest.raises(ValueError, match=words):
        plots.context_growth(models)


@pytest.mark.parametrize("draw", [plots.memory_bars, plots.context_growth])
def test_the_legend_lies_below_so_that_it_never_covers_the_title(draw):
    legend = draw(ROWS if draw is plots.memory_bars else MODELS).layout.legend
    assert legend.y < 0 and legend.yanchor == "top"
