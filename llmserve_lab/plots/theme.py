"""One palette and one plotly template for every picture of the course.

A colour means the same everywhere, and each meaning also has a pattern, so that a picture reads
without colour. Every colour keeps a contrast of at least 3:1 on white and on near-black.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go

NEUTRAL = "#7B818B"  # text and lines: readable on light and on dark paper
GRID = "rgba(128,132,140,0.22)"
FREE = "rgba(128,132,140,0.13)"
TRANSPARENT = "rgba(0,0,0,0)"
TITLE_PIXELS, LEGEND_GAP = 56, 54  # above a plot with its legend below; from the axis to that
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Mark:
    """How one meaning is drawn: `pattern` is plotly's marker pattern, "" is solid."""

    colour: str
    pattern: str
    label: str


QUEUE = Mark("#858B95", ".", "waiting in the queue")
PREFILL = Mark("#CC7A00", "/", "prefill")
DECODE = Mark("#2B7BBA", "", "decode")
MIXED = Mark("#CC7A00", "-", "prefill and decode")
WASTE = Mark("#B5588A", "\\", "reserved, unused")
SHARED = Mark("#2E9E77", "|", "shared")
REJECTED = Mark("#D0432B", "x", "rejected")
GUESS = Mark("#9A62C7", "", "your guess")
MEASURED = Mark("#0E8F9C", "", "measured")
CALCULATED = Mark("#6F7FB5", "", "calculated")
WEIGHTS = Mark("#8C6B3F", "", "weights")
KV_CACHE = Mark("#5C8F2B", "+", "KV cache")
ACTIVATION = Mark("#D1567F", ".", "activation")

MARKS = {
    "queue": QUEUE,
    "prefill": PREFILL,
    "decode": DECODE,
    "mixed": MIXED,
    "waste": WASTE,
    "shared": SHARED,
    "rejected": REJECTED,
    "guess": GUESS,
    "measured": MEASURED,
    "calculated": CALCULATED,
    "weights": WEIGHTS,
    "kv": KV_CACHE,
    "activation": ACTIVATION,
}

# One colour a request, in order of arrival; the request's number is always written beside it.
OWNERS = (
    "#4477AA",
    "#C2683B",
    "#3B8F6B",
    "#A3568F",
    "#8A7A1F",
    "#3D93A8",
    "#B84A5A",
    "#6E6BB8",
)


def owner_colour(index: int) -> str:
    """The colour of the request that arrived as number `index`."""
    return OWNERS[index % len(OWNERS)]


def translucent(colour: str, alpha: float) -> str:
    """`#RRGGBB` with an opacity of `alpha`, as CSS."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def graph_objects() -> Any:
    """plotly.graph_objects, loaded at first use.

    Raises:
        ImportError: plotly is not installed.
    """
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise ImportError(
            "Pictures need plotly: install it with `pip install 'llmserve-lab[lab]'`."
        ) from error
    return go


def new_figure(title: str, height: int = 360) -> go.Figure:
    """An empty figure in the course's style; `title` is the question that it answers."""
    figure: go.Figure = graph_objects().Figure()
    figure.update_layout(template=template(), height=height, title_text=title, autosize=True)
    return figure


def legend_below(figure: go.Figure, plot_pixels: int) -> None:
    """Put the legend under the x axis of a plot of about this height: there it may grow downwards
    where a narrow page stacks its entries, and never covers the title."""
    place = {"y": -LEGEND_GAP / plot_pixels, "yanchor": "top"}
    figure.update_layout(legend=place, margin={"t": TITLE_PIXELS})


def or_nothing(values: list[Any]) -> list[Any]:
    """The values, or one missing value: a trace without points keeps its legend entry."""
    return values or [None]


def bar_style(mark: Mark, under_text: bool = False) -> dict[str, Any]:
    """A bar trace's `marker` for a meaning; under_text: its pattern is thin enough to write on."""
    pattern = {
        "shape": mark.pattern,
        "bgcolor": mark.colour,
        "fgcolor": "rgba(255,255,255,0.8)",
        "size": 9 if under_text else 6,
        "solidity": 0.1 if under_text else 0.28,
    }
    return {"color": mark.colour, "line": {"width": 0}, "pattern": pattern}


@lru_cache(maxsize=1)
def template() -> go.layout.Template:
    """Transparent, quiet, with a neutral font."""
    axis = {
        "gridcolor": GRID,
        "linecolor": NEUTRAL,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": GRID,
        "automargin": True,
        "title": {"standoff": 8, "font": {"size": 12}},
    }
    layout = {
        "font": {"family": FONT, "size": 12, "color": NEUTRAL},
        "title": {
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 16},
            "font": {"size": 16},
        },
        "paper_bgcolor": TRANSPARENT,
        "plot_bgcolor": TRANSPARENT,
        "margin": {"l": 56, "r": 16, "t": 88, "b": 48},
        "xaxis": axis,
        "yaxis": axis,
        "colorway": [MEASURED.colour, *OWNERS],
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "itemsizing": "trace",
        },
        "hoverlabel": {"font": {"family": FONT, "size": 12}, "align": "left"},
        "bargap": 0.25,
    }
    return graph_objects().layout.Template(layout=layout)
