"""How a card or a piece of HTML reaches the page, in whatever front end there is."""

from __future__ import annotations

import html
import re
from importlib import import_module
from importlib.resources import files
from types import ModuleType
from typing import Any

WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


def asset(name: str) -> str:
    """The text of a file that lies beside this module."""
    return (files("llmserve_lab.widgets") / name).read_text(encoding="utf-8")


def inline(text: str) -> str:
    """Plain text as safe HTML, with `code`, **strong**, *emphasis* and line breaks."""
    safe = html.escape(text, quote=False)
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    safe = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", safe)
    safe = re.sub(r"(?<![\w*])\*(\w[^*]*)\*(?![\w*])", r"<em>\1</em>", safe)
    return safe.replace("\n", "<br>")


def plain(text: str) -> str:
    """The same text without its marks."""
    return html.unescape(re.sub(r"<[^>]+>", "", inline(text).replace("<br>", " ")))


def page(body: str) -> str:
    """HTML in the course's style, whole in itself: a front end may show each output alone."""
    return f"<div><style>{asset('kit.css')}</style>{body}</div>"


def cards() -> ModuleType | None:
    """The interactive cards, or None where anywidget is not installed."""
    try:
        return import_module("llmserve_lab.widgets.cards")
    except ImportError:
        return None


def emit(body: str, text: str, card: Any = None) -> None:
    """Display a card; where it cannot be drawn, `body` (HTML); without a notebook, `text`."""
    try:
        from IPython.display import display
    except ImportError:
        print(text)
        return
    data: dict[str, Any] = {"text/html": page(body), "text/plain": text}
    metadata: dict[str, Any] = {}
    if card is not None:
        view, metadata = _view(card)
        data = {WIDGET_MIME: view, **data}
    display(data, metadata=metadata, raw=True)


def _view(card: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    bundle = card._repr_mimebundle_()
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    return data[WIDGET_MIME], metadata
