"""Where a token lies, what paging changes, and what a block's size does."""

import pytest

from llmserve_lab import plots
from llmserve_lab.kv_cache import slots_of
from llmserve_lab.plots.address_map import way
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable

TABLE = [5, 0, 3]  # 10 tokens in blocks of 4
ROWS = {
    "longest": {"waste": 0.75, "used": 0.2, "batch": 4.0, "throughput": 3.5},
    "pages": {"waste": 0.05, "used": 0.9, "batch": 17.0, "throughput": 15.0},
}
SIZES = [
    {"block_size": 1, "waste": 0.0, "entries": 100.0, "found": 100.0},
    {"block_size": 16, "waste": 5.0, "entries": 7.0, "found": 96.0},
]


def shown(figure, stop):
    visible = figure.layout.sliders[0].steps[stop].args[1]
    return [trace for trace, on in zip(figure.data, visible, strict=True) if on]


def test_each_stop_marks_the_token_in_its_block_and_in_memory():
    figure = plots.address_map(TABLE, 10, 4, 8)
    require_readable(figure)
    steps = figure.layout.sliders[0].steps
    assert len(steps) == 10
    for position, step in enumerate(steps):
        left, right = shown(figure, position)[-2:]
        (slot,) = slots_of(TABLE, position, position + 1, 4)
        here = left.text.index(str(position))
        assert (left.base[here], left.y[here]) == (position % 4, position // 4)
        here = right.text.index(str(position))
        assert (right.base[here], right.y[here]) == (slot % 16, slot // 16)
        assert step.label.endswith(f"= {slot}") and step.label.startswith(f"{position}: ")
    assert "Logical block 0 in 5, 1 in 0, 2 in 3" in describe(figure)


def test_what_is_unwritten_and_what_is_another_is_told_apart_without_colour():
    figure = plots.address_map(TABLE, 10, 4, 8)
    physical = figure.data[6]  # after five keys and the logical side
    assert len(physical.text) == 32
    hatched = [i for i, shape in enumerate(physical.marker.pattern.shape) if shape]
    assert hatched == [slot for slot in slots_of(TABLE, 10, 12, 4)]
    assert sum("another's" in text for text in physical.hovertext) == 32 - 12
    names = [trace.name for trace in figure.data if trace.name]
    assert len(set(names)) == 5


def test_the_way_in_words():
    assert way(TABLE, 6, 4) == ("6: logical block 1, offset 2; table[1] = 0; slot 0 x 4 + 2 = 2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TABLE, 13, 4, 8), "3 blocks of 4 do not hold 13 tokens; draw 1 to 12"),
        ((TABLE, 0, 4, 8), "do not hold 0 tokens"),
        ((TABLE, 4, 4, 5), "blocks 0 to 4, the table has others"),
        (([0], 4, 32, 2), "blocks of at most 16 can be drawn"),
        (([0], 4, 16, 17), "At most 256 slots"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        plots.address_map(*arguments)


def test_a_large_block_fills_a_row():
    figure = plots.address_map([1, 0], 20, 16, 2)
    assert figure.layout.xaxis2.range[1] == 16
    assert max(figure.data[6].y) == 1


def test_four_panels_with_a_bar_for_each_way():
    figure = plots.paging_effects(ROWS)
    require_readable(figure)
    assert [list(trace.y) for trace in figure.data] == [[75, 5], [20, 90], [4, 17], [3.5, 15]]
    assert all(list(trace.x) == list(ROWS) for trace in figure.data)
    assert all(max(trace.y) < figure.layout[f"yaxis{i or ''}"].range[1]
               for trace, i in zip(figure.data, (None, 2, 3, 4), strict=True))  # fmt: skip
    assert "longest: held slots without a token (%) 75" in describe(figure)


def test_rows_that_say_too_little_are_refused():
    with pytest.raises(ValueError, match="at least one row"):
        plots.paging_effects({})
    with pytest.raises(ValueError, match="'pages' of paging_effects has no 'batch'"):
        plots.paging_effects({"pages": {"waste": 0, "used": 1, "throughput": 1}})
    with pytest.raises(ValueError, match="at least two block sizes"):
        plots.block_sizes(SIZES[:1])
    with pytest.raises(ValueError, match="has no 'found'"):
        plots.block_sizes([SIZES[0], {"block_size": 2, "waste": 1, "entries": 1}])


def test_labels_of_block_sizes_do_not_run_together():
    rows = [{**SIZES[0], "block_size": size} for size in (1, 2, 4, 16, 64, 128)]
    labels = plots.block_sizes(rows).layout.xaxis.ticktext
    assert labels == ("1", "", "4", "16", "", "128")


def test_block_sizes_are_told_apart_without_colour():
    figure = plots.block_sizes(SIZES)
    require_readable(figure)
    assert [list(trace.x) for trace in figure.data] == [[1, 16]] * 3
    assert [list(trace.y) for trace in figure.data] == [[0, 5], [100, 7], [100, 96]]
    assert len({trace.marker.symbol for trace in figure.data}) == 3
    assert figure.layout.yaxis2.type == "log" and figure.layout.xaxis.type == "log"
