"""The map of reserved memory shows every slot once, as what it is, at each moment."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab import plots
from llmserve_lab.engine.reserving_scheduler import ReservingScheduler
from llmserve_lab.kv_cache import ContiguousAllocator, OutOfMemoryError
from llmserve_lab.plots import theme
from llmserve_lab.plots.contiguous_map import PALE, owners_in_order, region_cells, row_length
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable


def moments():
    """A, B and C in 40 slots; then B leaves a hole that D (12) does not fit into."""
    memory, found = ContiguousAllocator(40), []
    for name, length, used in (("A", 10, 4), ("B", 10, 10), ("C", 12, 1)):
        memory.allocate(name, length)
        memory.append(name, used)
        found.append(memory.snapshot())
    memory.free("B")
    found.append(memory.snapshot())
    with pytest.raises(OutOfMemoryError):
        memory.allocate("D", 12)
    return found


def slots(cells, row_slots):
    """What each slot is drawn as: kind and row from the hover text."""
    found = {}
    for base, width, row, hover in zip(cells.base, cells.x, cells.y, cells.hover, strict=True):
        for slot in range(round(base), round(base + width)):
            number = row * row_slots + slot
            assert number not in found
            found[number] = hover
    return found


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 90), st.booleans()), max_size=12))
@settings(max_examples=60)
def test_every_slot_is_drawn_once_as_what_it_is(steps):
    memory = ContiguousAllocator(250)
    for name, (length, used, stays) in enumerate(steps):
        try:
            memory.allocate(str(name), length)
        except OutOfMemoryError:
            continue
        memory.append(str(name), min(used, length))
        if not stays:
            memory.free(str(name))
    shot = memory.snapshot()
    row_slots = row_length(250)
    drawn = slots(region_cells(shot, owners_in_order([shot]), row_slots), row_slots)
    assert sorted(drawn) == list(range(250))
    for region in shot.regions:
        for slot in range(region.start, region.stop):
            if region.free:
                expected = "free"
            else:
                expected = "used" if slot < region.start + region.used else "unused"
            assert drawn[slot].split(": ")[0] == expected
            assert region.free or f"request {region.owner}<br>" in drawn[slot]


def test_it_can_be_read_and_steps_through_every_moment():
    figure = plots.contiguous_map(moments())
    require_readable(figure)
    assert figure.layout.title.text.endswith("?")
    labels = [step.label for step in figure.layout.sliders[0].steps]
    assert labels == [
        "0: waste 6 of 10 reserved, largest free run 30 of 30, external fragmentation 0%",
        "1: waste 6 of 20 reserved, largest free run 20 of 20, external fragmentation 0%",
        "2: waste 17 of 32 reserved, largest free run 8 of 8, external fragmentation 0%",
        "3: waste 17 of 22 reserved, largest free run 10 of 18, external fragmentation 44%",
    ]


def test_moments_can_have_names():
    figure = plots.contiguous_map(moments()[2:], labels=["C comes", "B leaves"])
    slider = figure.layout.sliders[0]
    assert slider.steps[1].label.startswith("B leaves: waste 17 of 22")
    assert not slider.currentvalue.prefix


def test_waste_is_mauve_and_hatched_and_owners_have_their_colours():
    shot = moments()[2]
    cells = region_cells(shot, owners_in_order([shot]), row_length(40))
    for hover, colour, pattern, line in zip(
        cells.hover, cells.colour, cells.pattern, cells.line, strict=True
    ):
        if hover.startswith("unused"):
            assert colour == theme.translucent(theme.WASTE.colour, PALE)
            assert pattern == theme.WASTE.pattern
            assert line in theme.OWNERS
        elif hover.startswith("used"):
            assert colour in theme.OWNERS and not pattern
        else:
            assert colour == theme.FREE


def test_an_owner_keeps_its_colour_while_others_come_and_go():
    shots = moments()
    assert owners_in_order(shots) == {"A": 0, "B": 1, "C": 2}


def test_in_words_it_lists_the_fullest_moment_and_the_worst_fragmentation():
    text = describe(plots.contiguous_map(moments()))
    assert "Slots 0 to 9: request A, 4 used, 6 unused." in text
    assert "Slots 32 to 39: free." in text
    assert "External fragmentation is at most 44% (3)." in text


def test_the_maps_of_a_real_run(make_llm):
    scheduler = ReservingScheduler(to_model_len=False)
    llm = make_llm(scheduler=scheduler, num_blocks=12)
    llm.generate(["abcdef", "abc", "klmnopqrst"])
    figure = plots.contiguous_map(scheduler.maps)
    require_readable(figure)
    assert len(figure.layout.sliders[0].steps) == len(scheduler.maps) > 3


@pytest.mark.parametrize(
    ("given_moments", "labels", "error", "words"),
    [
        ([], None, ValueError, "at least one moment"),
        (ContiguousAllocator(8), None, TypeError, "snapshot"),
        ([ContiguousAllocator(8)], None, TypeError, "snapshot"),
        (
            [ContiguousAllocator(8).snapshot(), ContiguousAllocator(9).snapshot()],
            None,
            ValueError,
            "one memory",
        ),
        ([ContiguousAllocator(8).snapshot()], ["a", "b"], ValueError, "2 labels for 1 moments"),
    ],
)
def test_what_cannot_be_drawn_is_refused(given_moments, labels, error, words):
    with pytest.raises(error, match=words):
        plots.contiguous_map(given_moments, labels)
