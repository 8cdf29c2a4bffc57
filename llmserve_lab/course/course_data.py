"""The course's own data: one JSON file for each chapter, in folders below `data/`."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def read_folder(folder: str) -> dict[str, dict[str, Any]]:
    """The objects in `data/<folder>/*.json`, by file name without ending, in order.

    Raises:
        ValueError: a file has a key twice in one object.
    """
    found = (files("llmserve_lab.course") / "data" / folder).iterdir()
    named = {file.name.removesuffix(".json"): file for file in found if file.name.endswith(".json")}
    return {
        name: json.loads(
            named[name].read_text(encoding="utf-8"), object_pairs_hook=without_duplicates
        )
        for name in sorted(named)
    }


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different.

    Raises:
        ValueError: two are the same.
    """
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"Twice in one object: {next(k for k in keys if keys.count(k) > 1)!r}.")
    return result
