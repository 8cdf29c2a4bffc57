"""Whether a model still consists of the parts that were read from it."""

from __future__ import annotations

from operator import is_
from typing import Any

from torch import Tensor


class Fingerprint:
    """A model's modules, parameters and hooks at one moment. Values may change in place; another
    module, another parameter, other memory for it (`model.to(...)`) or a hook is a difference."""

    def __init__(self, model: Any) -> None:
        modules = list(model.modules())
        # A hook, or a forward() of its own, makes one of a module's dictionaries longer.
        self._dicts = [
            part for m in modules for part in (vars(m), m._forward_hooks, m._forward_pre_hooks)
        ]
        self._size = sum(map(len, self._dicts))
        tables = [table for m in modules for table in (m._modules, m._parameters)]
        held = [(table, name, part) for table in tables for name, part in table.items()]
        self._tables = [table for table, _, _ in held]
        self._names = [name for _, name, _ in held]
        self._parts = [part for _, _, part in held]
        self._parameters = [part for part in self._parts if isinstance(part, Tensor)]
        self._addresses = list(map(Tensor.data_ptr, self._parameters))

    def holds(self) -> bool:
        """Whether nothing differs. Some microseconds: it is asked in every step."""
        return (
            sum(map(len, self._dicts)) == self._size
            and all(map(is_, map(dict.get, self._tables, self._names), self._parts))
            and list(map(Tensor.data_ptr, self._parameters)) == self._addresses
        )
