"""What the engine looked like at each step: immutable snapshots, from which pictures are drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

TRACE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class RequestView:
    """One request at the end of a step. `block_table[i]` is the physical block of tokens
    `i * block_size` to `(i + 1) * block_size - 1`."""

    request_id: str
    state: str  # "waiting", "running" or "finished"
    num_prompt_tokens: int
    num_computed_tokens: int
    num_output_tokens: int
    block_table: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ScheduledView:
    """`num_tokens` tokens of a request, from position `start`, were run in this step.
    `num_prompt_tokens` of them belong to the prompt: those are prefill, the rest decode, drafts
    included."""

    request_id: str
    start: int
    num_tokens: int
    num_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class SampledView:
    """A token that this step produced, with its text (which may be empty: half a character)."""

    request_id: str
    token_id: int
    text: str


@dataclass(frozen=True, slots=True)
class DraftView:
    """A request's drafts in this step, as token ids, of which the first `num_accepted` were right.
    After them it got one token more, by the model itself: in the place of the first wrong draft, or
    where all were right a bonus. What came after a token that ended the text was dropped."""

    request_id: str
    token_ids: tuple[int, ...]
    num_accepted: int

    @property
    def num_proposed(self) -> int:
        return len(self.token_ids)

    @property
    def num_rejected(self) -> int:
        return self.num_proposed - self.num_accepted

    @property
    def has_bonus(self) -> bool:
        return self.num_rejected == 0


@dataclass(frozen=True, slots=True)
class StepSnapshot:
    """The engine after one step. Times are in seconds; `started` counts from the trace's origin."""

    step: int
    started: float
    seconds: float
    scheduled: tuple[ScheduledView, ...]
    sampled: tuple[SampledView, ...]
    waiting: tuple[RequestView, ...]
    running: tuple[RequestView, ...]
    finished: tuple[RequestView, ...]  # those that ended in this step, or were aborted before it
    preempted: tuple[str, ...]  # request ids sent back to the queue in this step
    block_size: int
    block_refs: tuple[int, ...]  # reference count of each physical block; 0 is free
    cached_blocks: tuple[int, ...] = ()  # free blocks whose content a prefix hit could reuse
    num_hit_tokens: int = 0  # prompt tokens that prefix caching saved in this step
    max_num_batched_tokens: int | None = None  # what a step may hold; None: not known
    drafts: tuple[DraftView, ...] = ()  # of requests that had some

    @property
    def num_blocks_used(self) -> int:
        return sum(1 for refs in self.block_refs if refs > 0)

    @property
    def num_tokens(self) -> int:
        return sum(item.num_tokens for item in self.scheduled)


@dataclass(slots=True)
class Trace:
    """The snapshots of a run, oldest first."""

    steps: list[StepSnapshot] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[StepSnapshot]:
        return iter(self.steps)

    def __getitem__(self, index: int) -> StepSnapshot:
        return self.steps[index]

    def to_json(self) -> str:
        return json.dumps({"format": TRACE_FORMAT, "steps": [asdict(step) for step in self.steps]})

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not a trace, or one of another format.
        """
        try:
            data = json.loads(text)
            if data["format"] == TRACE_FORMAT:
                return cls([_step_from(item) for item in data["steps"]])
        except (ValueError, TypeError, KeyError, AttributeError):
            pass  # refused below
        raise ValueError(
            f"This is not a trace of format {TRACE_FORMAT}; write one with Trace.to_json()."
        )


_NESTED = {
    "scheduled": ScheduledView,
    "sampled": SampledView,
    "waiting": RequestView,
    "running": RequestView,
    "finished": RequestView,
    "drafts": DraftView,
}
OPTIONAL = ("drafts",)  # which older traces lack


def _step_from(item: dict[str, Any]) -> StepSnapshot:
    values: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in item.items()
    }
    item = dict.fromkeys(OPTIONAL, ()) | item
    for key, kind in _NESTED.items():
        values[key] = tuple(_view_from(kind, entry) for entry in item[key])
    return StepSnapshot(**values)


def _view_from(kind: type, entry: dict[str, Any]) -> Any:
    return kind(**dict(entry, **_tuples(entry)))


def _tuples(item: dict[str, Any]) -> dict[str, Any]:
    """The lists among the values, as tuples: JSON knows no tuple."""
    return {key: tuple(value) for key, value in item.items() if isinstance(value, list)}
