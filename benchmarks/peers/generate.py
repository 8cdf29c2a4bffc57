"""transformers' `generate` in static batches, padded on the left. Settings: "batch", the requests
in one; "order", how they are sorted first: "given", "prompt" (length) or "output" (length, which a
server does not know beforehand).

A batch runs until its longest output is done; what the others compute meanwhile is thrown away.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig

from benchmarks.peers.protocol import serve

PAD = 0  # any id: it is masked


class Generate:
    """The model as transformers runs it by itself: SDPA attention, a dynamic cache."""

    def __init__(self, setup: dict[str, Any]) -> None:
        torch.set_num_threads(setup["threads"])
        dtype = getattr(torch, setup["dtype"])
        model = AutoModelForCausalLM.from_pretrained(setup["folder"], dtype=dtype)
        self.model = model.eval()
        # else it would stand in where a run's own configuration has none
        self.model.generation_config.eos_token_id = None

    def facts(self) -> dict[str, Any]:
        return {
            "engine": f"transformers {transformers.__version__}",
            "dtype": str(self.model.dtype),
            "threads": torch.get_num_threads(),
        }

    def prepare(self, job: dict[str, Any]) -> None: ...

    def run(self, job: dict[str, Any]) -> list[list[int]]:
        prompts, limits = job["prompts"], job["max_tokens"]
        found: dict[int, list[int]] = {}
        for batch in batches(prompts, limits, **job["settings"]):
            rows = self._batch([prompts[i] for i in batch], max(limits[i] for i in batch))
            found |= {i: row[: limits[i]] for i, row in zip(batch, rows, strict=True)}
        return [found[i] for i in range(len(prompts))]

    def _batch(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        longest = max(map(len, prompts))
        ids = torch.tensor([[PAD] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        with torch.inference_mode():
            output = self.model.generate(
                ids, attention_mask=mask, generation_config=greedy(max_tokens)
            )
        return output[:, longest:].tolist()


def greedy(max_tokens: int, eos: int | None = None) -> GenerationConfig:
    return GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=eos, pad_token_id=PAD
    )


def batches(prompts: list[list[int]], limits: list[int], batch: int, order: str) -> list[list[int]]:
    """The requests' numbers, in batches of `batch`."""
    keys = {
        "given": lambda i: i,
        "prompt": lambda i: len(prompts[i]),
        "output": lambda i: limits[i],
    }
    numbers = sorted(range(len(prompts)), key=keys[order])
    return [numbers[start : start + batch] for start in range(0, len(numbers), batch)]


if __name__ == "__main__":
    serve(Generate)
