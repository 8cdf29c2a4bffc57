"""transformers' continuous batching. Settings: "one call": `generate_batch` as it is called, with
one `max_new_tokens` for all requests; else its manager, which takes one for each.

Left alone, the cache takes nine tenths of the memory that is free, and its allocation most of the
time. Here it is given what the requests need.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import ContinuousBatchingConfig

from benchmarks.peers.generate import Generate, greedy
from benchmarks.peers.protocol import serve

PAGE = 256  # tokens, the default
BATCH_TOKENS = 2048  # as our engine's
NO_EOS = -1
PATIENCE = 1.0  # seconds of one wait for a result


class GenerateBatch(Generate):
    def run(self, job: dict[str, Any]) -> list[list[int]]:
        prompts, limits = job["prompts"], job["max_tokens"]
        config = cache_for(prompts, limits, job["settings"]["one call"])
        together = {
            "generation_config": greedy(max(limits), NO_EOS),
            "continuous_batching_config": config,
        }
        if job["settings"]["one call"]:
            results = self.model.generate_batch(prompts, **together).values()
            rows = [list(result.generated_tokens) for result in results]
            return [row[:limit] for row, limit in zip(rows, limits, strict=True)]
        with (
            torch.inference_mode(),
            self.model.continuous_batching_context_manager(**together) as manager,
        ):
            return _each_to_its_limit(manager, prompts, limits)


def cache_for(
    prompts: list[list[int]], limits: list[int], one_call: bool
) -> ContinuousBatchingConfig:
    """Room for all requests at once, each to its end."""
    ends = [max(limits) if one_call else limit for limit in limits]
    lengths = [len(prompt) + end for prompt, end in zip(prompts, ends, strict=True)]
    return ContinuousBatchingConfig(
        num_blocks=sum(-(-length // PAGE) for length in lengths) + 1,
        max_batch_tokens=max(BATCH_TOKENS, len(prompts)),
        max_requests_per_batch=len(prompts),
    )


def _each_to_its_limit(
    manager: Any, prompts: list[list[int]], limits: list[int]
) -> list[list[int]]:
    names = [
        manager.add_request(prompt, max_new_tokens=limit)
        for prompt, limit in zip(prompts, limits, strict=True)
    ]
    found: dict[str, list[int]] = {}
    while len(found) < len(names):
        result = manager.get_result(timeout=PATIENCE)
        if result is not None and result.is_finished():
            found[result.request_id] = list(result.generated_tokens)
        elif result is None and not manager.is_running():
            raise RuntimeError("transformers' continuous batching stopped before its end.")
    return [found[name] for name in names]


if __name__ == "__main__":
    serve(GenerateBatch)
