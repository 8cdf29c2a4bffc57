"""How much of a run's time its matrix products need on this machine.

The products are those of the model's linear layers, with their own weights, at the numbers of rows
that the engine's steps had, and nothing between them: done by torch layer by layer, or as the
engine does them, whichever is faster at that number of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from llmserve_lab import LLM
from llmserve_lab.engine.trace import StepSnapshot


@dataclass(frozen=True)
class Product:
    """A linear layer, called with (rows, width)."""

    call: Callable[[Any], Any]
    width: int


@dataclass(frozen=True)
class Way:
    """One way to compute a model's products: those of all tokens, and that of the output."""

    inner: list[Product]
    head: list[Product]


def shapes_of(steps: Iterable[StepSnapshot]) -> Counter[tuple[int, int]]:
    """How many steps ran so many (tokens, sampled rows)."""
    return Counter((step.num_tokens, len(step.sampled)) for step in steps)


def ways_of(llm: LLM) -> list[Way]:
    """torch's, and the engine's own where it has one for this model."""
    import torch

    head = llm.model.get_output_embeddings()
    plain = [m for m in llm.model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    ways = [Way([Product(m, m.in_features) for m in plain], [Product(head, head.in_features)])]
    decoder = llm._engine.runner.forward.decoder()
    if decoder is not None:
        fused = [
            part
            for layer in decoder.layers
            for part in (layer.qkv, layer.output, layer.gate_up, layer.down)
        ]
        ways.append(Way(list(map(_fused, fused)), [_fused(decoder.head)]))
    return ways


def _fused(part: Any) -> Product:
    return Product(part, part.layers[0].in_features)


def seconds_needed(
    ways: list[Way],
    dtype: Any,
    shapes: Counter[tuple[int, int]],
    repeats: int,
    clock: Callable[[], float],
) -> float:
    """For the products of all steps: at each number of rows the least of `repeats` and `ways`."""
    import torch

    tokens, rows = Counter[int](), Counter[int]()
    for (num_tokens, num_rows), steps in shapes.items():
        tokens[num_tokens] += steps
        rows[num_rows] += steps

    def total(counts: Counter[int], parts: list[list[Product]]) -> float:
        least = {n: min(_least(p, n, dtype, repeats, clock) for p in parts) for n in counts if n}
        return sum(counts[n] * seconds for n, seconds in least.items())

    with torch.inference_mode():
        return total(tokens, [w.inner for w in ways]) + total(rows, [w.head for w in ways])


def _least(
    products: list[Product], rows: int, dtype: Any, repeats: int, clock: Callable[[], float]
) -> float:
    """Seconds of one pass through the products, each on inputs of its own width."""
    import torch

    inputs = {each.width: torch.randn(rows, each.width).to(dtype) for each in products}

    def once() -> float:
        began = clock()
        for each in products:
            each.call(inputs[each.width])
        return clock() - began

    once()
    return min(once() for _ in range(repeats))
