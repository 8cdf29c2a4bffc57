"""Workloads from files: what a server was really asked, or what was drawn before."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from llmserve_lab.simulate.workload import Ask, Workload

REQUIRED = ("arrival", "prompt_tokens", "output_tokens")
COLUMNS = tuple(field.name for field in fields(Ask))
WHOLE = ("prompt_tokens", "output_tokens", "prefix_tokens", "priority")


def read_workload(path: str | Path, columns: Mapping[str, str] | None = None) -> Workload:
    """A workload from a CSV file with a header, or from a JSON list of objects (`.json`).

    Columns: arrival (seconds, or dates such as 2024-05-10 00:00:01.5), prompt_tokens,
    output_tokens; if wanted prefix, prefix_tokens, priority and abort_after (see `Ask`). Others are
    passed over. Arrivals count from the earliest one. columns: names in the file that differ, as
    {"prompt_tokens": "ContextTokens"}.

    Raises:
        ValueError: not such a file; the message names the row and the column.
        FileNotFoundError: no file there.
    """
    path = Path(path)
    names = {name: name for name in COLUMNS} | dict(columns or {})
    unknown = set(names) - set(COLUMNS)
    if unknown:
        raise ValueError(f"There is no column {unknown.pop()!r}; there are {', '.join(COLUMNS)}.")
    rows = _json_rows(path) if path.suffix == ".json" else _csv_rows(path)
    if not rows:
        raise ValueError(f"{path.name} holds no requests.")
    where = [f"{path.name}, row {number}" for number in range(1, len(rows) + 1)]
    values = [_values(row, names, place) for row, place in zip(rows, where, strict=True)]
    first = min(row["arrival"] for row in values)
    asks = (_ask(row, first, place) for row, place in zip(values, where, strict=True))
    return Workload(tuple(asks))


def write_workload(path: str | Path, workload: Workload) -> None:
    """Write the requests as CSV, for `read_workload`."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([getattr(ask, name) for name in COLUMNS] for ask in workload.asks)


def _csv_rows(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            return list(csv.DictReader(file))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path.name} is not a CSV file: {error}.") from None


def _json_rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON: {error}.") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path.name} must hold a list of objects, one per request.")
    return rows


def _values(row: dict[str, Any], names: dict[str, str], where: str) -> dict[str, Any]:
    """The fields of one `Ask`; empty ones are left to their defaults."""
    found: dict[str, Any] = {}
    for name, column in names.items():
        text = row.get(column)
        if text is None or text == "":
            if name in REQUIRED:
                raise ValueError(f"{where}: {column} is missing.")
            continue
        try:
            found[name] = _parse(name, text)
        except (ValueError, TypeError):
            kind = "a whole number" if name in WHOLE else "a number of seconds"
            raise ValueError(f"{where}: {column} must be {kind}, not {text!r}.") from None
    return found


def _ask(row: dict[str, Any], first: float, where: str) -> Ask:
    try:
        return Ask(**(row | {"arrival": row["arrival"] - first}))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _parse(name: str, value: Any) -> Any:
    if name == "prefix":
        return str(value)
    if name in WHOLE:
        number = float(value)
        if number != int(number):
            raise ValueError(value)
        return int(number)
    try:
        return float(value)
    except ValueError:
        return datetime.fromisoformat(value).timestamp()
