"""A sentence or two that a cell shows as its result."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_lab.widgets.page import inline, page


@dataclass(frozen=True, slots=True, repr=False)
class Note:
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return page(f'<p class="lsl">{inline(self.text)}</p>')
