"""A synthetic trace: a tiny simulated engine, with clocks that need no clock."""

from __future__ import annotations

import pytest

from llmserve_lab.engine.trace import (
    RequestView,
    SampledView,
    ScheduledView,
    StepSnapshot,
    Trace,
)

BLOCK_SIZE = 4
NUM_BLOCKS = 40


def synthetic_trace(num_requests: int = 6, max_running: int = 3, chunk: int = 16) -> Trace:
    """Requests of 6 to 15 prompt tokens and 5 to 9 output tokens, `max_running` at a time."""
    sizes = [(6 + (5 * i) % 10, 5 + i % 5) for i in range(num_requests)]
    waiting, running, done = list(range(num_requests)), [], set()
    computed, outputs = [0] * num_requests, [0] * num_requests
    tables: dict[int, list[int]] = {i: [] for i in range(num_requests)}
    free = list(range(NUM_BLOCKS))
    trace, now = Trace(), 0.0

    def view(i: int, state: str) -> RequestView:
        table = tuple(tables[i]) if state == "running" else ()
        return RequestView(str(i), state, sizes[i][0], computed[i], outputs[i], table)

    while len(done) < num_requests:
        while waiting and len(running) < max_running:
            running.append(waiting.pop(0))
        scheduled, sampled, ended = [], [], []
        for i in running:
            start, prompt = computed[i], sizes[i][0]
            count = min(chunk, prompt - start) if start < prompt else 1
            computed[i] += count
            while len(tables[i]) * BLOCK_SIZE < computed[i]:
                tables[i].append(free.pop(0))
            scheduled.append(ScheduledView(str(i), start, count, count if start < prompt else 0))
            if computed[i] >= prompt:
                outputs[i] += 1
                sampled.append(SampledView(str(i), 100 + i, f" t{outputs[i]}"))
            if outputs[i] == sizes[i][1]:
                ended.append(i)
        seconds = 0.004 + 0.001 * sum(s.num_tokens for s in scheduled)
        for i in ended:
            running.remove(i)
            done.add(i)
            free.extend(tables[i])
        refs = [0] * NUM_BLOCKS
        for i in running:
            for block in tables[i]:
                refs[block] += 1
        trace.steps.append(
            StepSnapshot(
                step=len(trace),
                started=now,
                seconds=seconds,
                scheduled=tuple(scheduled),
                sampled=tuple(sampled),
                waiting=tuple(view(i, "waiting") for i in waiting),
                running=tuple(view(i, "running") for i in running),
                finished=tuple(view(i, "finished") for i in ended),
                preempted=(),
                block_size=BLOCK_SIZE,
                block_refs=tuple(refs),
            )
        )
        now += seconds
    return trace


@pytest.fixture
def trace() -> Trace:
    return synthetic_trace()
