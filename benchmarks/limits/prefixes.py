"""What a shared prefix saves: time of the steps that compute prompts, and of those that do not."""

from __future__ import annotations

from collections.abc import Iterable

from llmserve_lab.engine.trace import StepSnapshot


def split(steps: Iterable[StepSnapshot]) -> dict[str, float]:
    """ "prompt_tokens" computed and "hit_tokens" found in the cache; "prompt_seconds" of steps with
    any of the former, "decode_seconds" of the others."""
    found = {"prompt_tokens": 0, "hit_tokens": 0, "prompt_seconds": 0.0, "decode_seconds": 0.0}
    for step in steps:
        computed = sum(item.num_prompt_tokens for item in step.scheduled)
        found["prompt_tokens"] += computed
        found["hit_tokens"] += step.num_hit_tokens
        found["prompt_seconds" if computed else "decode_seconds"] += step.seconds
    return found
