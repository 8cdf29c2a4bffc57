"""What goes into a model, call by call: of transformers by a hook, of the engine at its runner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llmserve_lab.course.past import NAMES, cache_name


@dataclass(frozen=True, slots=True)
class ForwardCall:
    """One forward pass. shape: of the token ids. positions: one list a row. cached, held: tokens in
    the cache before and after, over all rows; of the engine those of this batch. kv_bytes: what the
    cache's tensors then take; of the engine, the blocks of this batch. rows: whose logits are made.
    slots: the engine's slot mapping. seconds: of the call."""

    shape: tuple[int, ...]
    positions: list[list[int]]
    cached: int
    held: int
    kv_bytes: int
    rows: int
    seconds: float
    slots: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Token ids that the call computes, padding included."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def __str__(self) -> str:
        return f"input {self.shape!s:<8} cached {self.cached:>3} -> {self.held:>3}"


@contextmanager
def forward_calls(model: Any) -> Iterator[list[ForwardCall]]:
    """Note every call of a transformers model in the block, with a pair of hooks.

    model: such as `load(...).model`. The calls come in order; the list fills while the block runs.
    """
    calls: list[ForwardCall] = []
    begun: list[tuple[float, int]] = []

    def before(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        rows = _ids(args, kwargs).shape[0]
        begun.append((time.perf_counter(), rows * _length(_cache(kwargs))))

    def after(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        seconds, (started, cached) = time.perf_counter(), begun.pop()
        cache = getattr(output, cache_name(module), None)
        calls.append(_call(_ids(args, kwargs), kwargs, output, cache, cached, seconds - started))

    hooks = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, with_kwargs=True),
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def engine_calls(llm: Any) -> Iterator[list[ForwardCall]]:
    """Note every forward pass of an engine in the block: its one flat row of tokens, and where
    their keys and values go."""
    calls: list[ForwardCall] = []
    runner, block_bytes = llm._engine.runner, llm.capacity.block_bytes
    forward = runner.forward

    def noting(tokens: Any, positions: Any, rows: Any, batch: Any, backend: Any) -> Any:
        started = time.perf_counter()
        logits = forward(tokens, positions, rows, batch, backend)
        seconds = time.perf_counter() - started
        calls.append(_engine_call(positions.tolist(), len(rows), batch, block_bytes, seconds))
        return logits

    runner.forward = noting
    try:
        yield calls
    finally:
        runner.forward = forward


def _engine_call(
    positions: list[int], rows: int, batch: Any, block_bytes: int, seconds: float
) -> ForwardCall:
    blocks = {block for segment in batch.segments for block in segment.block_table}
    return ForwardCall(
        shape=(len(positions),),
        positions=[positions],
        cached=sum(segment.start for segment in batch.segments),
        held=sum(segment.context for segment in batch.segments),
        kv_bytes=len(blocks) * block_bytes,
        rows=rows,
        seconds=seconds,
        slots=tuple(batch.slot_mapping.tolist()),
    )


def cache_bytes(cache: Any) -> int:
    """Bytes of the keys and values in a cache of transformers; 0 for None."""
    layers = [] if cache is None else cache.layers
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)


def _call(
    ids: Any, kwargs: dict[str, Any], output: Any, cache: Any, cached: int, seconds: float
) -> ForwardCall:
    """ids: (rows, columns) int64."""
    start = cached // ids.shape[0]
    given = kwargs.get("position_ids")
    default = [list(range(start, start + ids.shape[1]))] * ids.shape[0]
    return ForwardCall(
        shape=tuple(ids.shape),
        positions=default if given is None else given.tolist(),
        cached=cached,
        held=ids.shape[0] * _length(cache),
        kv_bytes=cache_bytes(cache),
        rows=output.logits.shape[0] * output.logits.shape[1],
        seconds=seconds,
    )


def _ids(args: Any, kwargs: dict[str, Any]) -> Any:
    return args[0] if args else kwargs["input_ids"]


def _cache(kwargs: dict[str, Any]) -> Any:
    return next((kwargs[name] for name in NAMES if kwargs.get(name) is not None), None)


def _length(cache: Any) -> int:
    return 0 if cache is None else int(cache.get_seq_length())
