"""Cells as the bytes of a notebook: the same bytes on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat

from llmserve_lab.course.settings import Settings
from llmserve_lab.course.source import Cell

NAMESPACE = "llmserve_lab"  # our part of the notebook's metadata
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def opening(settings: Settings, notebook: Path, lang: str) -> list[Cell]:
    """The cells that every notebook begins with: the way to Colab, and what Colab needs.

    The way is a link, not the usual badge: an image from the network is a broken one offline.
    """
    link = f"[Open in Colab]({settings.colab_url(notebook)})"
    setup = (
        "# @title Setup: installs the course on Colab, does nothing elsewhere\n"
        "import sys\n\n"
        'if "google.colab" in sys.modules:\n'
        f'    %pip install -q --no-deps "{settings.requirement}"'
    )
    return [
        Cell("markdown", link, key="colab-link", lang=lang),
        Cell("code", setup, key="colab-setup", tags=("setup", "hide")),
    ]


def notebook_text(cells: list[Cell]) -> str:
    """The notebook as it stands in the repository: no outputs, no counts, stable ids.

    Source: the notebook format 4.5, https://nbformat.readthedocs.io/en/latest/format_description.html
    """
    metadata = {**METADATA, NAMESPACE: {"digest": digest(cell.text for cell in cells)}}
    notebook = nbformat.from_dict(
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": metadata,
            "cells": [_cell(cell) for cell in cells],
        }
    )
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def digest(texts: Iterable[str]) -> str:
    """Tells whether any cell's text was changed since the notebook was written."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _cell(cell: Cell) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if cell.key:
        metadata["key"] = cell.key
    if cell.exercise:
        metadata["exercise"] = cell.exercise
    if tags := [tag for tag in cell.tags if tag != "hide"]:
        metadata["tags"] = tags
    if "hide" in cell.tags:
        metadata |= {"jupyter": {"source_hidden": True}, "cellView": "form"}
    common = {"id": cell.identity, "metadata": metadata, "source": cell.text}
    if cell.kind == "markdown":
        return {"cell_type": "markdown", **common}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **common}
