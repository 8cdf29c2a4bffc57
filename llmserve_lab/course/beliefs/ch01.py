"""Chapter 01: throughput is not latency, and memory limits both."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from llmserve_lab.course.misconceptions import Misconception

REQUESTS = 16
TOKENS = 6
FEW_BLOCKS = 4  # of the KV cache; one request of this size needs one
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


def cache_limits_the_batch() -> str:
    from llmserve_lab import LLM, load

    model = load("lab-target")
    roomy = LLM(model, max_num_seqs=REQUESTS, num_blocks=REQUESTS, trace=True)
    tight = LLM(model, max_num_seqs=REQUESTS, num_blocks=FEW_BLOCKS, trace=True)
    most = []
    for llm in (roomy, tight):
        outputs = llm.generate([PROMPT] * REQUESTS, _params())
        assert all(len(output.outputs[0].token_ids) == TOKENS for output in outputs)
        most.append(max(len(step.scheduled) for step in llm.trace))
    assert most == [REQUESTS, FEW_BLOCKS]
    assert len(tight.trace) > len(roomy.trace)
    return (
        f"The same weights, the same limit of {REQUESTS} requests: with {REQUESTS} KV blocks "
        f"{most[0]} of {REQUESTS} requests ran together and all were done in {len(roomy.trace)} "
        f"steps; with {FEW_BLOCKS} blocks at most {most[1]} ran together, and it took "
        f"{len(tight.trace)}."
    )


def _params() -> Any:
    from llmserve_lab import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)


def _serve(model: Any, batch_size: int) -> Served:
    """The requests in batches, each sent when the one before has been served: no one queues."""
    from llmserve_lab import LLM

    llm = LLM(model, max_num_seqs=batch_size, trace=True)
    outputs: list[Any] = []
    for _ in range(REQUESTS // batch_size):
        outputs += llm.generate([PROMPT] * batch_size, _params())
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
    Misconception(
        key="01.weights-are-the-memory",
        belief="Once the weights fit in memory, memory has no more to do with speed.",
        wrong="This is wrong: the memory beside the weights bounds how many requests run together.",
        mechanism=(
            "Each running request keeps the keys and values of all its tokens, in blocks of the KV "
            "cache. When no block is free, a request waits, however many the limit allows. "
            "Less memory for the cache means smaller batches, and smaller batches mean more steps."
        ),
        experiment=cache_limits_the_batch,
    ),
)
