"""Reservations, slot use and batches: what is drawn is what was counted."""

import pytest

from llmserve_lab import plots
from llmserve_lab.course.completions import Completion
from llmserve_lab.course.slot_use import SlotUse
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable

REQUESTS = [Completion("b", (1, 2, 3), 4), Completion("a", (1,), 2), Completion("c", (1, 2), 18)]
USES = [SlotUse(10, 20, 30, 35, 5), SlotUse(30, 10, 20, 40, 0)]
BATCHES = {"reserved": [1, 1, 1, 1], "paged": [3, 1]}


def test_each_reservation_is_stacked_from_prompt_answer_and_what_stays_empty():
    figure = plots.reservation_fill(REQUESTS, reserved=20)
    require_readable(figure)
    bars = {trace.name: list(trace.y) for trace in figure.data}
    assert bars == {"prompt": [1, 3, 2], "answer": [2, 4, 18], "reserved, never used": [17, 13, 0]}
    assert figure.layout.barmode == "stack"
    assert len({trace.marker.pattern.shape for trace in figure.data}) == 3
    assert "3 requests of 3 to 20 tokens" in describe(figure)
    assert "50% of the reserved slots" in describe(figure)


@pytest.mark.parametrize(
    ("requests", "words"), [([], "at least one"), (REQUESTS, "20 tokens does not fit into 19")]
)
def test_a_request_must_fit_its_reservation(requests, words):
    with pytest.raises(ValueError, match=words):
        plots.reservation_fill(requests, reserved=19)


def test_the_areas_fill_the_memory_at_every_step():
    figure = plots.slot_use_areas(USES)
    require_readable(figure)
    assert len(figure.data) == 5 and {trace.stackgroup for trace in figure.data} == {"slots"}
    heights = [sum(values) for values in zip(*(trace.y for trace in figure.data), strict=True)]
    assert heights == [100, 100] and tuple(figure.layout.yaxis.range) == (0, 100)
    drawn = {trace.name: tuple(trace.y) for trace in figure.data}
    assert drawn["used: holds a token"] == (10, 30)
    assert drawn["reserved, never used"] == (30, 20)
    looks = [(trace.fillpattern.shape, trace.fillcolor) for trace in figure.data]
    assert len(set(looks)) == 5
    assert len({shape for shape, _ in looks if shape}) == 3
    assert "2 steps of 100 slots" in describe(figure)
    assert "used: holds a token 20%" in describe(figure)


def test_a_line_ends_after_its_last_step():
    figure = plots.batch_lines(BATCHES)
    require_readable(figure)
    lines = {trace.name: (list(trace.x), list(trace.y)) for trace in figure.data}
    assert lines == {
        "reserved: 4 steps": ([0, 1, 2, 3, 4], [1, 1, 1, 1, 0]),
        "paged: 2 steps": ([0, 1, 2], [3, 1, 0]),
    }
    assert len({trace.line.dash for trace in figure.data}) == 2
    assert "paged: at most 3 together, 2.0 on average, 2 steps." in describe(figure)


@pytest.mark.parametrize(
    ("draw", "nothing"),
    [(plots.slot_use_areas, []), (plots.batch_lines, {}), (plots.batch_lines, {"a": []})],
)
def test_nothing_to_draw_is_told(draw, nothing):
    with pytest.raises(ValueError, match="at least one"):
        draw(nothing)


@pytest.mark.parametrize(
    "figure",
    [
        lambda: plots.reservation_fill(REQUESTS, 20),
        lambda: plots.slot_use_areas(USES),
        lambda: plots.batch_lines(BATCHES),
    ],
)
def test_the_legend_lies_below_and_the_title_asks(figure):
    layout = figure().layout
    assert layout.legend.y < 0 and layout.title.text.endswith("?")
