"""Chapter 01: throughput and latency are two things."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from llmserve_lab.course.misconceptions import Misconception

REQUESTS = 16
TOKENS = 6
PROMPT = "def parse(text):"


@dataclass(frozen=True, slots=True)
class Served:
    """What one way of serving the same requests took."""

    steps: int
    steps_per_request: int  # each takes as many: they are equal
    tokens_per_step: float
    requests_per_second: float
    median_latency: float  # s


def batching_serves_more_and_waits_longer() -> str:
    from llmserve_lab import load

    model = load("lab-target")
    alone, together = _serve(model, batch_size=1), _serve(model, batch_size=REQUESTS)
    assert alone.steps == REQUESTS * together.steps
    assert together.steps_per_request == alone.steps_per_request
    assert together.tokens_per_step == REQUESTS * alone.tokens_per_step
    return (
        f"One at a time, {REQUESTS} requests took {alone.steps} steps; together they took "
        f"{together.steps}. But each still needed {together.steps_per_request} steps, and a step "
        f"now carries {together.tokens_per_step / alone.tokens_per_step:.0f} times the tokens. "
        f"On this machine requests/s went from {alone.requests_per_second:.1f} to "
        f"{together.requests_per_second:.1f}, and one request's median latency from "
        f"{alone.median_latency * 1000:.0f} ms to {together.median_latency * 1000:.0f} ms."
    )


def _serve(model: Any, batch_size: int) -> Served:
    """The requests in batches, each sent when the one before has been served: no one queues."""
    from llmserve_lab import LLM, SamplingParams

    llm = LLM(model, max_num_seqs=batch_size, trace=True)
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    outputs: list[Any] = []
    for _ in range(REQUESTS // batch_size):
        outputs += llm.generate([PROMPT] * batch_size, params)
    metrics = [output.metrics for output in outputs]
    seconds = max(m.token_times[-1] for m in metrics) - min(m.arrival for m in metrics)
    first = outputs[0].request_id
    return Served(
        steps=len(llm.trace),
        steps_per_request=sum(
            first in {item.request_id for item in step.scheduled} for step in llm.trace
        ),
        tokens_per_step=sum(step.num_tokens for step in llm.trace) / len(llm.trace),
        requests_per_second=REQUESTS / seconds,
        median_latency=median(m.e2e for m in metrics),
    )


MISCONCEPTIONS = (
    Misconception(
        key="01.throughput-is-latency",
        belief="A server with high throughput answers each request fast.",
        wrong="This is wrong: throughput is what the server gets done, not how long one waits.",
        mechanism=(
            "A batch shares each step among many requests: one read of the weights makes a token "
            "for all of them. So more requests are done per second. But no request needs fewer "
            "steps than before, and a step that carries more tokens does not get shorter."
        ),
        experiment=batching_serves_more_and_waits_longer,
    ),
)
