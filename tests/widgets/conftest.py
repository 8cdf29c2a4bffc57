"""An engine that streams from a script: tokens, steps and blocks without a model."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from llmserve_lab.engine.trace import (
    RequestView,
    SampledView,
    ScheduledView,
    StepSnapshot,
    Trace,
)


@dataclass(frozen=True)
class Event:
    request_id: str
    index: int
    token_id: int | None
    text: str
    finish_reason: str | None
    seconds: float


class ScriptedLLM:
    """Two requests of `tokens` tokens each; interrupts itself before step `interrupt_at`."""

    def __init__(self, tokens: int = 4, interrupt_at: int | None = None) -> None:
        self.trace = Trace()
        self.tokens = tokens
        self.interrupt_at = interrupt_at
        self.closed = False
        self.next_id = 0

    def stream(self, prompts, params):
        ids = [str(self.next_id + i) for i in range(len(prompts))]
        self.next_id += len(prompts)
        try:
            for index in range(self.tokens):
                if index == self.interrupt_at:
                    raise KeyboardInterrupt
                self.trace.steps.append(self._step(ids, index))
                for request_id in ids:
                    last = "length" if index == self.tokens - 1 else None
                    yield Event(request_id, index, 7, f"<{index}>", last, 0.0)
        finally:
            self.closed = True

    def _step(self, ids: list[str], index: int) -> StepSnapshot:
        last = index == self.tokens - 1
        views = tuple(
            RequestView(r, "running", 3, 3 + index, index + 1, (i,)) for i, r in enumerate(ids)
        )
        prompt = 3 if index == 0 else 0
        return StepSnapshot(
            step=len(self.trace),
            started=0.01 * index,
            seconds=0.01,
            scheduled=tuple(ScheduledView(r, 0, prompt or 1, prompt) for r in ids),
            sampled=tuple(SampledView(r, 7, "x") for r in ids),
            waiting=(),
            running=() if last else views,
            finished=views if last else (),
            preempted=(),
            block_size=16,
            block_refs=(0,) * 8 if last else (1,) * len(ids) + (0,) * (8 - len(ids)),
        )


@pytest.fixture
def shown(monkeypatch) -> list[dict]:
    """What was displayed, each redrawing included."""
    bundles: list[dict] = []

    class Handle:
        def update(self, data, raw):
            bundles.append(data)

    def display(data, raw=True, display_id=None, metadata=None):
        bundles.append(data)
        return Handle() if display_id else None

    monkeypatch.setattr("IPython.display.display", display)
    return bundles


@pytest.fixture
def scripted() -> type[ScriptedLLM]:
    return ScriptedLLM
