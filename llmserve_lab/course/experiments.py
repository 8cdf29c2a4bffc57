"""The plumbing of the chapters' experiments: prompts to serve, and runs to compare."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

WARM_UP_TOKENS = 4
MIB = 2**20


@dataclass(frozen=True, slots=True)
class BatchRun:
    """The same requests, served `batch_size` at a time. latency: median seconds from a request's
    arrival to its last token. kv_mib: the most that the KV cache held."""

    batch_size: int
    latency: float
    throughput: float  # requests/s
    tokens_per_second: float
    kv_mib: float
    step_ms: float  # median of the decode steps
    steps: int

    def __str__(self) -> str:
        return (
            f"batch {self.batch_size:>2}: {self.latency:6.3f} s  "
            f"{self.throughput:6.2f} requests/s  {self.kv_mib:5.2f} MiB  "
            f"{self.steps:>3} steps of {self.step_ms:5.2f} ms"
        )


def held_out_prompts(
    tokenizer: Any, count: int, num_tokens: int, seed: int = 0
) -> list[dict[str, list[int]]]:
    """`count` prompts of `num_tokens` tokens each, cut from library files that no bundled model was
    trained on. The same seed gives the same prompts."""
    from llmserve_lab.models.corpus import held_out_sample

    rng = random.Random(seed)
    files = [tokenizer(file.text, verbose=False)["input_ids"] for file in held_out_sample()]
    long_enough = [ids for ids in files if len(ids) >= num_tokens]
    if not long_enough:
        raise ValueError(f"No held-out file has {num_tokens} tokens; ask for fewer.")
    prompts = []
    for _ in range(count):
        ids = rng.choice(long_enough)
        start = rng.randrange(len(ids) - num_tokens + 1)
        prompts.append({"prompt_token_ids": ids[start : start + num_tokens]})
    return prompts


def serve_in_batches(model: Any, prompts: Sequence[Any], params: Any, batch_size: int) -> BatchRun:
    """Serve `prompts` `batch_size` at a time, each batch sent when the one before is done, so that
    nobody queues: latency is what serving takes, not what waiting takes.

    model: what `load` returned. One short batch is run first, to warm up.
    """
    from dataclasses import replace

    from llmserve_lab import LLM

    llm = LLM(model, max_num_seqs=batch_size, trace=True)
    llm.generate(prompts[:batch_size], replace(params, max_tokens=WARM_UP_TOKENS, min_tokens=0))
    warm = len(llm.trace)
    outputs: list[Any] = []
    for first in range(0, len(prompts), batch_size):
        outputs += llm.generate(prompts[first : first + batch_size], params)
    return _summary(batch_size, outputs, llm.trace.steps[warm:], llm.capacity.block_bytes)


def _summary(batch_size: int, outputs: list[Any], steps: Any, block_bytes: int) -> BatchRun:
    metrics = [output.metrics for output in outputs]
    seconds = max(m.token_times[-1] for m in metrics) - min(m.arrival for m in metrics)
    decode = [s.seconds for s in steps if all(i.num_prompt_tokens == 0 for i in s.scheduled)]
    blocks = max(_blocks_held(step) for step in steps)
    return BatchRun(
        batch_size=batch_size,
        latency=median(m.e2e for m in metrics),
        throughput=len(outputs) / seconds,
        tokens_per_second=sum(len(m.token_times) for m in metrics) / seconds,
        kv_mib=blocks * block_bytes / MIB,
        step_ms=1000 * median(decode),
        steps=len(steps),
    )


def _blocks_held(step: Any) -> int:
    """Blocks in use while the step ran: requests that ended in it still held theirs."""
    tables = [view.block_table for view in (*step.running, *step.finished)]
    return len({block for table in tables for block in table})
