"""From a token's position to its place in memory, through the block table, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.plots.cells import CELL, Cells
from llmserve_lab.plots.stepping import Stepper, stops
from llmserve_lab.plots.theme import (
    FREE,
    GRID,
    WASTE,
    graph_objects,
    owner_colour,
    template,
    translucent,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

SLOTS_IN_ROW = 16  # of physical memory, at least a block
LARGEST_BLOCK, MOST_SLOTS = 16, 256  # what can be told apart
PALE, MIDDLE = 0.42, 0.7  # of a colour: the request's slots, and the token's block
ROW_PIXELS, AROUND = 30, 236
TITLE = "Where does each token lie?"


def address_map(
    block_table: Sequence[int],
    num_tokens: int,
    block_size: int,
    num_blocks: int,
    title: str = TITLE,
) -> go.Figure:
    """Left, a request's tokens in order, a row for each logical block; right, the memory. A slider
    goes through the positions and shows the way: block and offset, table entry, slot.

    Raises:
        ValueError: the table does not hold the tokens or is not of this memory, or there is more
            than can be drawn.
    """
    _require_drawable(block_table, num_tokens, block_size, num_blocks)
    figure = _panels(title, len(block_table), block_size, num_blocks)
    stepper = Stepper(figure)
    _add_key(stepper)
    where = {block: logical for logical, block in enumerate(block_table)}
    stepper.always(_logical(len(block_table), num_tokens, block_size).bars(), row=1, col=1)
    stepper.always(_physical(where, num_tokens, block_size, num_blocks).bars(), row=1, col=2)
    for position in stops(num_tokens):
        chosen = _chosen(block_table, position, block_size)
        places = [(cells.bars(), {"row": 1, "col": 1 + side}) for side, cells in enumerate(chosen)]
        stepper.stop(way(block_table, position, block_size), places)
    figure.update_layout(meta={"alt": _in_words(title, block_table, num_tokens, block_size)})
    return stepper.finish(start=len(stepper.labels) // 2, prefix="token ")


def way(block_table: Sequence[int], position: int, block_size: int) -> str:
    """The address translation of one token, in words."""
    logical, offset = divmod(position, block_size)
    block = block_table[logical]
    return (
        f"{position}: logical block {logical}, offset {offset}; table[{logical}] = {block}; "
        f"slot {block} x {block_size} + {offset} = {block * block_size + offset}"
    )


def _logical(num_rows: int, num_tokens: int, block_size: int) -> Cells:
    cells = Cells()
    for logical in range(num_rows):
        for offset in range(block_size):
            position = logical * block_size + offset
            written = position < num_tokens
            _add_slot(cells, offset, logical, written, f"position {position}")
    return cells


def _physical(where: dict[int, int], num_tokens: int, block_size: int, num_blocks: int) -> Cells:
    cells = Cells()
    for slot in range(num_blocks * block_size):
        block, offset = divmod(slot, block_size)
        row, column = divmod(slot, _row_slots(block_size))
        if block in where:
            position = where[block] * block_size + offset
            hover = f"slot {slot}: block {block}, position {position}"
            _add_slot(cells, column, row, position < num_tokens, hover)
        else:
            cells.add(column, CELL, row, FREE, f"slot {slot}: another's, or free", line=GRID)
    return cells


def _add_slot(cells: Cells, column: int, row: int, written: bool, hover: str) -> None:
    colour = translucent(owner_colour(0), PALE)
    if written:
        cells.add(column, CELL, row, colour, hover, line=GRID)
    else:
        pale = translucent(WASTE.colour, PALE)
        cells.add(column, CELL, row, pale, f"{hover}: unwritten", pattern=WASTE.pattern)


def _chosen(block_table: Sequence[int], position: int, block_size: int) -> tuple[Cells, Cells]:
    """The block and, in it, the token of one position: in the sequence, and in memory."""
    logical, offset = divmod(position, block_size)
    left, right = Cells(), Cells()
    for place in range(block_size):
        here = place == offset
        colour = owner_colour(0) if here else translucent(owner_colour(0), MIDDLE)
        text = str(position) if here else ""
        slot = block_table[logical] * block_size + place
        row, column = divmod(slot, _row_slots(block_size))
        left.add(place, CELL, logical, colour, f"position {position}", text)
        right.add(column, CELL, row, colour, f"slot {slot}", text)
    return left, right


def _row_slots(block_size: int) -> int:
    """Slots in a row of the memory: whole blocks."""
    return max(1, SLOTS_IN_ROW // block_size) * block_size


def _panels(title: str, num_logical: int, block_size: int, num_blocks: int) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    in_row = _row_slots(block_size)
    rows = -(-num_blocks * block_size // in_row)
    figure = make_subplots(
        rows=1, cols=2, column_widths=[block_size, in_row], horizontal_spacing=0.16
    )
    figure.update_layout(
        template=template(), title_text=title, autosize=True, barmode="overlay",
        height=AROUND + ROW_PIXELS * max(num_logical, rows), margin={"t": 92, "b": 118},
    )  # fmt: skip
    _axes(figure, 1, "offset in the block", "logical block", block_size, range(num_logical))
    firsts = range(0, num_blocks * block_size, in_row)
    _axes(figure, 2, "slot in the row", "first slot of the row", in_row, firsts)
    return figure


def _axes(
    figure: go.Figure, column: int, across: str, down: str, width: int, names: Sequence[int]
) -> None:
    centres = [place + CELL / 2 for place in range(width)]
    figure.update_xaxes(
        title_text=across, tickvals=centres, ticktext=list(range(width)), range=[-0.05, width],
        showgrid=False, ticks="", row=1, col=column,
    )  # fmt: skip
    figure.update_yaxes(
        title_text=down, tickvals=list(range(len(names))), ticktext=list(names),
        range=[len(names) - 0.5, -0.5], showgrid=False, ticks="", row=1, col=column,
    )  # fmt: skip


def _add_key(stepper: Stepper) -> None:
    go = graph_objects()
    keys = (
        ("of this request", translucent(owner_colour(0), PALE), ""),
        ("its block", translucent(owner_colour(0), MIDDLE), ""),
        ("the token", owner_colour(0), ""),
        ("not written yet", translucent(WASTE.colour, PALE), WASTE.pattern),
        ("another's, or free", FREE, ""),
    )
    for label, colour, shape in keys:
        pattern = {"shape": shape, "bgcolor": colour, "fgcolor": WASTE.colour, "size": 5}
        marker: dict[str, Any] = {
            "color": colour, "pattern": pattern, "line": {"width": 1, "color": GRID},
        }  # fmt: skip
        key = go.Bar(name=label, x=[None], y=[None], orientation="h", marker=marker)
        stepper.always(key, row=1, col=1)


def _in_words(title: str, block_table: Sequence[int], num_tokens: int, block_size: int) -> str:
    entries = ", ".join(f"{logical} in {block}" for logical, block in enumerate(block_table))
    last = way(block_table, num_tokens - 1, block_size)
    return (
        f"{title} {num_tokens} tokens in blocks of {block_size}. Logical block {entries}. "
        f"The last, token {last}."
    )


def _require_drawable(
    block_table: Sequence[int], num_tokens: int, block_size: int, num_blocks: int
) -> None:
    if not 1 <= num_tokens <= len(block_table) * block_size:
        raise ValueError(
            f"{len(block_table)} blocks of {block_size} do not hold {num_tokens} tokens; draw 1 to "
            f"{len(block_table) * block_size}."
        )
    if any(not 0 <= block < num_blocks for block in block_table):
        raise ValueError(f"The memory has blocks 0 to {num_blocks - 1}, the table has others.")
    if block_size > LARGEST_BLOCK or num_blocks * block_size > MOST_SLOTS:
        raise ValueError(
            f"At most {MOST_SLOTS} slots in blocks of at most {LARGEST_BLOCK} can be drawn, not "
            f"{num_blocks} blocks of {block_size}."
        )
