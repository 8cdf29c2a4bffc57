"""A grid of cells as bars: the physical blocks of the KV cache, and the tables that map to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.theme import (
    FREE,
    GRID,
    NEUTRAL,
    SHARED,
    TRANSPARENT,
    WASTE,
    graph_objects,
    or_nothing,
    owner_colour,
    translucent,
)

if TYPE_CHECKING:
    from llmserve_lab.engine.trace import RequestView, StepSnapshot

COLUMNS = 8  # physical blocks in a row of the map
MAX_LOGICAL = 12
MAX_REQUESTS = 16
CELL = 0.92  # of a grid unit; the rest is the gap between cells


@dataclass(slots=True)
class Cells:
    """Bars that make up a grid of cells: parallel lists, as plotly wants them."""

    base: list[float] = field(default_factory=list)
    x: list[float] = field(default_factory=list)
    y: list[Any] = field(default_factory=list)
    colour: list[str] = field(default_factory=list)
    pattern: list[str] = field(default_factory=list)
    line: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    hover: list[str] = field(default_factory=list)

    def add(
        self,
        column: float,
        width: float,
        row: Any,
        colour: str,
        hover: str,
        text: str = "",
        pattern: str = "",
        line: str = TRANSPARENT,
    ) -> None:
        self.base.append(round(column, 4))
        self.x.append(round(width, 4))
        self.y.append(row)
        self.colour.append(colour)
        self.pattern.append(pattern)
        self.line.append(line)
        self.text.append(text)
        self.hover.append(hover)

    def bars(self) -> Any:
        pattern = {
            "shape": self.pattern,
            "bgcolor": self.colour,
            "fgcolor": WASTE.colour,
            "size": 5,
            "solidity": 0.3,
        }
        return graph_objects().Bar(
            orientation="h",
            base=self.base or [0],
            x=or_nothing(self.x),
            y=or_nothing(self.y),
            width=CELL,
            marker={
                "color": self.colour,
                "line": {"width": 1, "color": self.line},
                "pattern": pattern,
            },
            text=self.text,
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": [NEUTRAL if p else "#FFFFFF" for p in self.pattern], "size": 11},
            constraintext="none",
            hovertext=self.hover,
            hoverinfo="text",
            showlegend=False,
        )


def map_cells(step: StepSnapshot, names: dict[str, int], count: int) -> Cells:
    """The physical memory at the end of a step."""
    owners = _owners(step)
    cells = Cells()
    for block in range(min(count, len(step.block_refs))):
        row, column = divmod(block, COLUMNS)
        if block in owners:
            _owned_cell(cells, step, names, block, owners[block])
        elif step.block_refs[block] > 0:
            cells.add(column, CELL, row, NEUTRAL, f"physical block {block}: held", text="?")
        else:
            cached = block in step.cached_blocks
            hover = f"physical block {block}: free" + (", content still cached" if cached else "")
            cells.add(column, CELL, row, FREE, hover, pattern="." if cached else "", line=GRID)
    return cells


def _owned_cell(
    cells: Cells,
    step: StepSnapshot,
    names: dict[str, int],
    block: int,
    owners: list[tuple[RequestView, int]],
) -> None:
    row, column = divmod(block, COLUMNS)
    view, logical = owners[0]
    filled = max(0, min(step.block_size, view.num_computed_tokens - logical * step.block_size))
    shared = len(owners) > 1
    colour = SHARED.colour if shared else owner_colour(names.get(view.request_id, 0))
    who = ", ".join(v.request_id for v, _ in owners)
    hover = (
        f"physical block {block}: request {who}, logical block {logical}<br>"
        f"{filled} of {step.block_size} slots written"
    )
    label = f"{len(owners)}x" if shared else _short(view.request_id, names)
    share = CELL * filled / step.block_size
    wide = share >= CELL / 2  # the label stands where there is more room
    if share:
        cells.add(column, share, row, colour, hover, text=label if wide else "")
    if share < CELL:
        pale, text = translucent(colour, 0.22), "" if wide else label
        cells.add(column + share, CELL - share, row, pale, hover, text, pattern=WASTE.pattern)


def table_cells(step: StepSnapshot, names: dict[str, int]) -> Cells:
    """The block tables at the end of a step: row = request, column = logical block."""
    cells = Cells()
    views = sorted(step.running, key=lambda view: names.get(view.request_id, 0))
    for view in [v for v in views if v.block_table][:MAX_REQUESTS]:
        colour = owner_colour(names.get(view.request_id, 0))
        row = _short(view.request_id, names)
        for logical, block in enumerate(view.block_table[:MAX_LOGICAL]):
            hover = f"request {view.request_id}: logical block {logical} is physical block {block}"
            cells.add(logical, CELL, row, colour, hover, text=str(block))
    return cells


def _owners(step: StepSnapshot) -> dict[int, list[tuple[RequestView, int]]]:
    owners: dict[int, list[tuple[RequestView, int]]] = {}
    for view in step.running:
        for logical, block in enumerate(view.block_table):
            owners.setdefault(block, []).append((view, logical))
    return owners


def _short(request_id: str, names: dict[str, int]) -> str:
    return request_id if len(request_id) <= 3 else str(names.get(request_id, 0))
