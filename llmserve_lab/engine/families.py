"""Which requests are continuations of one prompt, and so share an id."""

from __future__ import annotations

from collections.abc import Iterable


class Families:
    """The open continuations of each prompt that has several: "7" stands for "7.0" and "7.1"."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, None]] = {}

    def add(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            shared, dot, _ = request_id.rpartition(".")
            if dot:
                self._members.setdefault(shared, {})[request_id] = None

    def end(self, request_id: str) -> None:
        """Forget a request that has ended; does nothing if it has no siblings."""
        shared = request_id.rpartition(".")[0]
        members = self._members.get(shared, {})
        members.pop(request_id, None)
        if not members:
            self._members.pop(shared, None)

    def members(self, shared: str) -> list[str]:
        """The open ones that share this id, in order."""
        return list(self._members.get(shared, ()))

    def __len__(self) -> int:
        return len(self._members)
