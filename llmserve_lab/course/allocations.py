"""The memory of tensors while something runs: measured, not derived from shapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import finalize


@dataclass(slots=True)
class Allocations:
    """In bytes. peak: the most that tensors made in the block held at any moment; kept: what they
    held when it ended."""

    peak: int = 0
    kept: int = 0
    _held: int = 0
    _known: set[int] = field(default_factory=set)  # storages, by address

    def _know(self, tensor: Any) -> None:
        """Take no notice of a tensor from before the block, for as long as it is there."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self._known.add(storage._cdata)
            finalize(storage, self._release, storage._cdata, 0)

    def _note(self, tensor: Any) -> None:
        """Count a tensor's storage, until it goes, unless it is known: a view holds nothing."""
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address in self._known:
            return
        self._known.add(address)
        self._held += size
        self.peak = max(self.peak, self._held)
        finalize(storage, self._release, address, size)

    def _release(self, address: int, size: int) -> None:
        self._known.discard(address)
        self._held -= size


@contextmanager
def allocations() -> Iterator[Allocations]:
    """Measure the block: `with allocations() as seen: llm.step()`, then `seen.peak`.

    Each operator of torch is watched, on any device: what it makes counts from there until the last
    reference to it goes. Scratch space within an operator, Python objects and what other libraries
    allocate do not count.
    """
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    seen = Allocations()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            kwargs = kwargs or {}
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, Tensor):
                    seen._know(leaf)
            result = func(*args, **kwargs)
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor):
                    seen._note(leaf)
            return result

    with Watch():
        yield seen
    seen.kept = seen._held
