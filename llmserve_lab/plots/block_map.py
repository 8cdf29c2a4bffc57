"""The KV memory map: physical blocks as cells, and each request's block table beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.plots.cells import (
    CELL,
    COLUMNS,
    MAX_LOGICAL,
    MAX_REQUESTS,
    map_cells,
    table_cells,
)
from llmserve_lab.plots.stepping import Stepper, require_steps, step_label, stops
from llmserve_lab.plots.theme import (
    FREE,
    GRID,
    WASTE,
    graph_objects,
    owner_colour,
    template,
    translucent,
)
from llmserve_lab.plots.timeline import request_order

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from llmserve_lab.engine.trace import StepSnapshot, Trace

MAX_BLOCKS = 256


def kv_block_map(
    trace: Trace, title: str = "Which request owns which block of the KV cache?"
) -> go.Figure:
    """Each physical block as a cell, step by step; beside it the tables that map to them.

    A cell carries its owner's colour and number; the hatched part of a cell is allocated but
    not yet written. A slider steps through the trace.

    Raises:
        ValueError: the trace has no steps.
    """
    steps = require_steps(trace)
    names = {request_id: i for i, request_id in enumerate(request_order(steps))}
    count = blocks_to_draw(steps)
    rows = -(-count // COLUMNS)
    figure = _panels(title, rows, steps)
    stepper = Stepper(figure)
    _add_key(stepper)
    for index in stops(len(steps)):
        step = steps[index]
        cells = [(map_cells(step, names, count).bars(), {"row": 1, "col": 1})]
        cells.append((table_cells(step, names).bars(), {"row": 1, "col": 2}))
        used = f"{step.num_blocks_used} of {len(step.block_refs)} blocks in use"
        stepper.stop(f"{step_label(step)}; {used}", cells)
    fullest = max(range(len(stepper.labels)), key=lambda i: _used_at(steps, i))
    figure.update_layout(meta={"alt": _in_words(title, steps[stops(len(steps))[fullest]])})
    return stepper.finish(start=fullest)


def blocks_to_draw(steps: list[StepSnapshot]) -> int:
    """Whole rows of blocks up to the highest that was ever used, and a row of free ones."""
    total = max(len(step.block_refs) for step in steps)
    highest = max((i for s in steps for i, refs in enumerate(s.block_refs) if refs), default=0)
    wanted = (highest // COLUMNS + 2) * COLUMNS
    return min(total, wanted, MAX_BLOCKS)


def _in_words(title: str, step: StepSnapshot) -> str:
    """The alternative text: the block tables at the fullest step."""
    tables = " ".join(
        f"Request {view.request_id}: {', '.join(map(str, view.block_table))}."
        for view in step.running
        if view.block_table
    )
    used = f"{step.num_blocks_used} of {len(step.block_refs)} blocks are in use"
    return f"{title} After step {step.step}, {used}. Physical blocks of each request: {tables}"


def _used_at(steps: list[StepSnapshot], stop: int) -> int:
    return steps[stops(len(steps))[stop]].num_blocks_used


def _panels(title: str, rows: int, steps: list[StepSnapshot]) -> go.Figure:
    graph_objects()
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, column_widths=[0.56, 0.44], horizontal_spacing=0.12)
    height = max(330, min(640, 230 + 34 * rows))
    figure.update_layout(
        template=template(),
        title_text=title,
        height=height,
        barmode="overlay",
        margin={"t": 92, "b": 118},
        autosize=True,
    )
    longest = max((len(v.block_table) for s in steps for v in s.running), default=1)
    columns = max(4, min(MAX_LOGICAL, longest))
    centre = [i + CELL / 2 for i in range(max(COLUMNS, columns))]
    figure.update_xaxes(
        showgrid=False, ticks="", tickvals=centre, ticktext=list(range(len(centre)))
    )
    figure.update_yaxes(showgrid=False, ticks="")
    figure.update_xaxes(title_text="block in row", range=[-0.05, COLUMNS], row=1, col=1)
    figure.update_yaxes(
        title_text="first block of row",
        range=[rows - 0.5, -0.5],
        tickvals=list(range(rows)),
        ticktext=[str(r * COLUMNS) for r in range(rows)],
        row=1,
        col=1,
    )
    what = "logical block" if longest <= columns else f"logical block (the first {columns})"
    figure.update_xaxes(title_text=what, range=[-0.05, columns], row=1, col=2)
    most = max(len([v for v in s.running if v.block_table]) for s in steps)
    bottom = max(4, min(MAX_REQUESTS, most)) - 0.5
    figure.update_yaxes(title_text="request", type="category", range=[bottom, -0.5], row=1, col=2)
    return figure


def _add_key(stepper: Stepper) -> None:
    go = graph_objects()
    keys = (
        ("in use, by request", owner_colour(0), ""),
        ("allocated, unwritten", translucent(owner_colour(0), 0.22), WASTE.pattern),
        ("free", FREE, ""),
    )
    for label, colour, shape in keys:
        pattern = {"shape": shape, "bgcolor": colour, "fgcolor": WASTE.colour, "size": 5}
        marker = {"color": colour, "pattern": pattern, "line": {"width": 1, "color": GRID}}
        key = go.Bar(name=label, x=[None], y=[None], orientation="h", marker=marker)
        stepper.always(key, row=1, col=1)
