"""A continuous scheduler's plan in shuffled lines (a Parsons problem: Parsons & Haden 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from llmserve_lab.course.own_scheduler import OwnScheduler

LINES = {
    "a": "    count = min(request.num_uncomputed_tokens, left)",
    "b": "return batch",
    "c": "while self.waiting and len(self.running) < self.limits.max_num_seqs:",
    "d": "        left -= count",
    "e": "batch, left = [], self.limits.max_num_batched_tokens",
    "f": "        batch.append(self.part(request, count))",
    "g": "for request in self.running:",
    "h": "    self.start(self.waiting[0])",
    "i": "    if count > 0 and self.grow(request, count):",
}
INDENT = " " * 4

# Every order that works: who is let in before or after the batch is begun, and what of the two
# lines about a part comes first, makes no difference. A test tries all orders.
WORKING = tuple(
    f"{begin}gai{part}b" for begin, part in product(("che", "ech"), ("fd", "df"))
)  # fmt: skip


def assembled(order: Sequence[str]) -> type[OwnScheduler]:
    """A scheduler whose plan is these lines, from first to last.

    order: letters of `LINES`.

    Raises:
        SyntaxError: the lines are no Python in this order.
    """
    source = "def plan(self):\n" + "\n".join(INDENT + LINES[letter] for letter in order)
    names: dict[str, Any] = {}
    exec(compile(source, "<your order>", "exec"), names)
    return type("Assembled", (OwnScheduler,), {"plan": names["plan"], "__module__": "answer"})


def first_wrong_pair(order: Sequence[str]) -> tuple[str | None, str]:
    """The first two neighbours with which no working order begins: None and a letter where already
    the first line is wrong.

    Raises:
        ValueError: every pair is right.
    """
    for length in range(1, len(order) + 1):
        begun = "".join(order[:length])
        if not any(working.startswith(begun) for working in WORKING):
            return (order[length - 2] if length > 1 else None), order[length - 1]
    raise ValueError("This order works: no pair of it is wrong.")
