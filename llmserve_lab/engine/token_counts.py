"""Which tokens each request holds, and how often: kept up to date one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmserve_lab.engine.position import Row

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class _Row:
    """Where a request's tokens are: token id to column; and how many of its tokens were noted."""

    index: int
    columns: dict[int, int] = field(default_factory=dict)
    noted: int = 0


class TokenCounts:
    """One row per request, one column per different token in it; a tensor that grows by doubling.

    A row follows its request's `token_ids`, of which the first `num_prompt_tokens` are the prompt:
    preemption changes neither, so nothing is counted twice and no output turns into prompt.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._free: list[int] = []
        self._table: torch.Tensor | None = None  # (token id and count, rows, columns) int64

    def __len__(self) -> int:
        return len(self._rows)

    def forget(self, request: Row) -> None:
        """Let another request have the row."""
        if request.request_id in self._rows:
            self._free.append(self._rows.pop(request.request_id).index)

    def of(self, requests: Sequence[Row], device: torch.device) -> tuple[torch.Tensor, ...]:
        """The different tokens of each request, prompt included, and how often each is in the
        output, tokens ahead included: both (requests, most different tokens) int64. Shorter rows
        repeat their first."""
        import torch

        rows = [self._row(request) for request in requests]
        new = [entry for r, row in zip(requests, rows, strict=True) for entry in _new(r, row)]
        lengths = [len(row.columns) for row in rows]
        table = self._reserve(len(self._rows) + len(self._free), max(lengths), device)
        if new:
            index, columns, tokens, counts = torch.tensor(new, device=device).T
            table[0, index, columns] = tokens
            table[1].index_put_((index, columns), counts, accumulate=True)
        chosen = torch.tensor([row.index for row in rows], device=device)
        found = table[:, chosen, : max(lengths)]
        if any(request.tokens_ahead for request in requests):
            found, lengths = _with_ahead(found, rows, requests)
        columns = torch.arange(max(lengths), device=device)
        there = columns < torch.tensor(lengths, device=device)[:, None]
        return tuple(torch.where(there, found, found[:, :, :1]))

    def _row(self, request: Row) -> _Row:
        """The request's row; begun anew where tokens were taken back."""
        row = self._rows.get(request.request_id)
        if row is not None and row.noted > len(request.token_ids):
            self.forget(request)
            row = None
        if row is None:
            row = _Row(self._free.pop() if self._free else len(self._rows))
            self._rows[request.request_id] = row
            if self._table is not None and row.index < self._table.shape[1]:
                self._table[1, row.index] = 0
        return row

    def _reserve(self, rows: int, columns: int, device: torch.device) -> torch.Tensor:
        import torch

        old = self._table
        if old is None or rows > old.shape[1] or columns > old.shape[2]:
            have = (0, 0) if old is None else old.shape[1:]
            size = [n if n <= had else 2 * n for n, had in zip((rows, columns), have, strict=True)]
            size = [max(n, had) for n, had in zip(size, have, strict=True)]
            self._table = torch.zeros((2, *size), dtype=torch.int64, device=device)
            if old is not None:
                self._table[:, : have[0], : have[1]] = old
        assert self._table is not None
        return self._table


def _new(request: Row, row: _Row) -> list[tuple[int, int, int, int]]:
    """(row, column, token, 1 if output) of each token that came since the latest look."""
    entries = []
    for position in range(row.noted, len(request.token_ids)):
        token = request.token_ids[position]
        column = row.columns.setdefault(token, len(row.columns))
        entries.append((row.index, column, token, int(position >= request.num_prompt_tokens)))
    row.noted = len(request.token_ids)
    return entries


def _with_ahead(
    found: torch.Tensor, rows: list[_Row], requests: Sequence[Row]
) -> tuple[torch.Tensor, list[int]]:
    """Count the tokens ahead too; they are not kept. found: (token id and count, requests,
    columns). Returns it, wider where there are other tokens, and how many columns each row has."""
    import torch

    entries: list[tuple[int, int, int]] = []
    lengths = []
    for index, (row, request) in enumerate(zip(rows, requests, strict=True)):
        others: dict[int, int] = {}
        for token in request.tokens_ahead:
            column = row.columns.get(token)
            if column is None:
                column = others.setdefault(token, len(row.columns) + len(others))
            entries.append((index, column, token))
        lengths.append(len(row.columns) + len(others))
    found = torch.nn.functional.pad(found, (0, max(lengths) - found.shape[2]))
    places, columns, tokens = torch.tensor(entries, device=found.device).T
    found[0, places, columns] = tokens
    found[1].index_put_((places, columns), torch.ones_like(tokens), accumulate=True)
    return found, lengths
