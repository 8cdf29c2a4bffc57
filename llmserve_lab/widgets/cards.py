"""The course's interactive cards: anywidgets whose state is a few synced traits."""

from __future__ import annotations

from typing import ClassVar

import anywidget
import traitlets

from llmserve_lab.widgets.page import asset


def _script(name: str) -> str:
    return asset("kit.js") + asset(name)


class PredictCard(anywidget.AnyWidget):
    """A guess and a confidence. `answer` is what the learner sends; `recorded` what was kept."""

    _esm: ClassVar[str] = _script("predict_card.js")
    _css: ClassVar[str] = asset("kit.css")
    spec = traitlets.Dict().tag(sync=True)
    answer = traitlets.Dict().tag(sync=True)
    recorded = traitlets.Dict().tag(sync=True)
    locked = traitlets.Bool(False).tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)


class QuizCard(anywidget.AnyWidget):
    """One or more questions; `state` maps a question's key to its tries."""

    _esm: ClassVar[str] = _script("quiz_card.js")
    _css: ClassVar[str] = asset("kit.css")
    spec = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)


class BecauseBox(anywidget.AnyWidget):
    """One sentence. `text` is what the learner sends; `saved` what was kept."""

    _esm: ClassVar[str] = _script("because_box.js")
    _css: ClassVar[str] = asset("kit.css")
    spec = traitlets.Dict().tag(sync=True)
    text = traitlets.Unicode("").tag(sync=True)
    saved = traitlets.Unicode("").tag(sync=True)
    opened = traitlets.Bool(False).tag(sync=True)


class ExplainCard(anywidget.AnyWidget):
    """An answer in one's own words; `ticked` holds the keys of the points found in it."""

    _esm: ClassVar[str] = _script("explain_card.js")
    _css: ClassVar[str] = asset("kit.css")
    spec = traitlets.Dict().tag(sync=True)
    text = traitlets.Unicode("").tag(sync=True)
    saved = traitlets.Unicode("").tag(sync=True)
    opened = traitlets.Bool(False).tag(sync=True)
    ticked = traitlets.List(traitlets.Unicode()).tag(sync=True)


class ChecklistCard(anywidget.AnyWidget):
    """Boxes to tick; `checked` holds the keys of those ticked."""

    _esm: ClassVar[str] = _script("checklist_card.js")
    _css: ClassVar[str] = asset("kit.css")
    spec = traitlets.Dict().tag(sync=True)
    checked = traitlets.List(traitlets.Unicode()).tag(sync=True)


class MemoryCard(anywidget.AnyWidget):
    """A memory plan. `choice` is what the learner chose; `picture` the HTML that it gives."""

    _esm: ClassVar[str] = _script("memory_card.js")
    _css: ClassVar[str] = asset("kit.css")
    spec = traitlets.Dict().tag(sync=True)
    choice = traitlets.Dict().tag(sync=True)
    picture = traitlets.Unicode("").tag(sync=True)
