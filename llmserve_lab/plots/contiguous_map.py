"""The map of a memory that is reserved in one piece a request: used, reserved for later, free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.kv_cache.memory_map import MemoryMap, Region
from llmserve_lab.plots.cells import Cells
from llmserve_lab.plots.stepping import Stepper, stops
from llmserve_lab.plots.theme import (
    FREE,
    GRID,
    WASTE,
    graph_objects,
    new_figure,
    owner_colour,
    translucent,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

SHORTEST_ROW = 64  # slots
MOST_ROWS = 12
TICKS = 8  # in a row
ROW_PIXELS, AROUND, SHORTEST = 34, 236, 300
CHARACTER = 0.016  # of a row: what one character of a label takes at 800 pixels
PALE = 0.5
TITLE = "Who holds which slots, and which of them stay empty?"


def contiguous_map(
    moments: Sequence[MemoryMap], labels: Sequence[str] | None = None, title: str = TITLE
) -> go.Figure:
    """The memory at each moment, row by row: slots with a token in their request's colour,
    reserved but unused ones hatched in mauve, free ones pale. A slider steps through the moments
    and says internal waste, largest free run and external fragmentation, in slots.

    moments: of one memory, such as `ReservingScheduler.maps` or what `ContiguousAllocator.snapshot`
    returned now and then. labels: a name for each; else their numbers.

    Raises:
        ValueError: no moments, moments of memories of different sizes, or labels that do not match.
        TypeError: something else than the maps that `snapshot` returns.
    """
    shots = _require_moments(moments)
    names = _require_labels(labels, len(shots))
    chosen = stops(len(shots))
    owners, row_slots = owners_in_order(shots), row_length(shots[0].num_slots)
    figure = _panel(title, shots[0].num_slots, row_slots)
    stepper = Stepper(figure)
    _add_key(stepper)
    for index in chosen:
        cells = region_cells(shots[index], owners, row_slots)
        stepper.stop(f"{names[index]}: {measures(shots[index])}", [(cells.bars(), {})])
    fullest = max(range(len(chosen)), key=lambda stop: shots[chosen[stop]].num_reserved)
    figure.update_layout(meta={"alt": _in_words(title, shots, names, chosen[fullest])})
    return stepper.finish(start=fullest, prefix="step " if labels is None else "")


def owners_in_order(moments: Sequence[MemoryMap]) -> dict[str, int]:
    """Each request's number, in the order in which they are first seen."""
    seen = (r.owner for shot in moments for r in shot.regions if r.owner is not None)
    return {owner: number for number, owner in enumerate(dict.fromkeys(seen))}


def row_length(num_slots: int) -> int:
    """Slots in a row: all, or a power of two that gives at most `MOST_ROWS` rows."""
    length = SHORTEST_ROW
    while num_slots > length * MOST_ROWS:
        length *= 2
    return min(length, num_slots)


def measures(shot: MemoryMap) -> str:
    """One moment in words, in slots."""
    return (
        f"waste {shot.internal_waste} of {shot.num_reserved} reserved, "
        f"largest free run {shot.largest_free_run} of {shot.num_free}, "
        f"external fragmentation {shot.external_fragmentation:.0%}"
    )


def region_cells(shot: MemoryMap, owners: dict[str, int], row_slots: int) -> Cells:
    """The regions as bars, cut where a row ends. x: slots in the row; y: the row."""
    cells = Cells()
    for region in shot.regions:
        middle = region.start + region.used
        if region.owner is None:
            _add(cells, region.start, region.stop, row_slots, FREE, f"free: {_slots(region)}")
            continue
        colour = owner_colour(owners[region.owner])
        label = region.owner if len(region.owner) <= 3 else str(owners[region.owner])
        where = f"request {region.owner}<br>{_in_region(region)}"
        label = _add(cells, region.start, middle, row_slots, colour, f"used: {where}", label)
        pale = translucent(WASTE.colour, PALE)
        _add(cells, middle, region.stop, row_slots, pale, f"unused: {where}", label, colour)
    return cells


def _add(
    cells: Cells,
    start: int,
    stop: int,
    row_slots: int,
    colour: str,
    hover: str,
    label: str = "",
    outline: str = "",
) -> str:
    """Slots `start` to `stop`; with an outline they are waste, hatched. Returns the label if there
    was no room for it."""
    pattern, line = (WASTE.pattern, outline) if outline else ("", GRID)
    for row, first, length in _pieces(start, stop, row_slots):
        fits = len(label) * CHARACTER * row_slots <= length
        text = label if fits else ""
        cells.add(first, length, row, colour, hover, text, pattern, line)
        label = "" if fits else label
    return label


def _pieces(start: int, stop: int, row_slots: int) -> Iterator[tuple[int, int, int]]:
    """Row, first slot in it, and length of each part of `start` to `stop`."""
    while start < stop:
        row, first = divmod(start, row_slots)
        length = min(stop - start, row_slots - first)
        yield row, first, length
        start += length


def _slots(region: Region) -> str:
    return f"slots {region.start} to {region.stop - 1}"


def _in_region(region: Region) -> str:
    return f"{_slots(region)}: {region.used} used, {region.wasted} reserved for later"


def _panel(title: str, num_slots: int, row_slots: int) -> go.Figure:
    rows = -(-num_slots // row_slots)
    figure = new_figure(title, max(SHORTEST, AROUND + ROW_PIXELS * rows))
    figure.update_layout(barmode="overlay", margin={"t": 92, "b": 118})
    figure.update_xaxes(
        title_text="slot in the row",
        range=[0, row_slots],
        dtick=max(1, row_slots // TICKS),
        showgrid=False,
    )
    figure.update_yaxes(
        title_text="first slot of the row",
        tickvals=list(range(rows)),
        ticktext=[str(row * row_slots) for row in range(rows)],
        range=[rows - 0.5, -0.5],
        showgrid=False,
        ticks="",
    )
    return figure


def _add_key(stepper: Stepper) -> None:
    go = graph_objects()
    keys: tuple[tuple[str, str, str], ...] = (
        ("used, by request", owner_colour(0), ""),
        (WASTE.label, translucent(WASTE.colour, PALE), WASTE.pattern),
        ("free", FREE, ""),
    )
    for label, colour, shape in keys:
        pattern = {"shape": shape, "bgcolor": colour, "fgcolor": WASTE.colour, "size": 5}
        marker = {"color": colour, "pattern": pattern, "line": {"width": 1, "color": GRID}}
        stepper.always(go.Bar(name=label, x=[None], y=[None], orientation="h", marker=marker))


def _in_words(title: str, shots: list[MemoryMap], names: list[str], shown: int) -> str:
    """The alternative text: the fullest moment region by region, and the worst fragmentation."""
    regions = " ".join(
        f"{_slots(r).capitalize()}: "
        + ("free." if r.free else f"request {r.owner}, {r.used} used, {r.wasted} unused.")
        for r in shots[shown].regions
    )
    worst = max(range(len(shots)), key=lambda index: shots[index].external_fragmentation)
    share = shots[worst].external_fragmentation
    return (
        f"{title} {len(shots)} moments of {shots[0].num_slots} slots. At the fullest "
        f"({names[shown]}): {measures(shots[shown])}. {regions} "
        f"External fragmentation is at most {share:.0%} ({names[worst]})."
    )


def _require_moments(moments: Any) -> list[MemoryMap]:
    shots = list(moments) if isinstance(moments, Sequence) else [moments]
    if not shots:
        raise ValueError("There is nothing to draw: give at least one moment of the memory.")
    for shot in shots:
        if not isinstance(shot, MemoryMap):
            raise TypeError(
                f"A moment is what snapshot() returns, not {type(shot).__name__}; "
                "give a list of them."
            )
    if len({shot.num_slots for shot in shots}) > 1:
        raise ValueError("These moments are not of one memory: their numbers of slots differ.")
    return shots


def _require_labels(labels: Sequence[str] | None, count: int) -> list[str]:
    if labels is None:
        return [str(number) for number in range(count)]
    if len(labels) != count:
        raise ValueError(f"{len(labels)} labels for {count} moments: give one for each.")
    return list(labels)
