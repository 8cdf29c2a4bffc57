"""The course's pictures: each a function that returns a plotly Figure, and one way to show them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_lab.plots.block_map import kv_block_map
    from llmserve_lab.plots.display import show
    from llmserve_lab.plots.step_bars import step_times
    from llmserve_lab.plots.timeline import request_timeline
    from llmserve_lab.plots.tradeoff import tradeoff_panels
    from llmserve_lab.plots.triangle import whatif_triangle

__all__ = [
    "kv_block_map",
    "request_timeline",
    "show",
    "step_times",
    "tradeoff_panels",
    "whatif_triangle",
]

_HOMES = {
    "kv_block_map": "block_map",
    "request_timeline": "timeline",
    "show": "display",
    "step_times": "step_bars",
    "tradeoff_panels": "tradeoff",
    "whatif_triangle": "triangle",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
