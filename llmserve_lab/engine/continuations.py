"""The requests of one prompt."""

from __future__ import annotations

from llmserve_lab.engine.logprob import Entry
from llmserve_lab.engine.prompts import Prompt
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams


def continuations(
    prompt: Prompt, params: SamplingParams, priority: int, number: int, can_fork: bool
) -> list[Request]:
    """One request for each of `params.n` continuations. number: of the prompt. can_fork: let the
    first compute the prompt for all."""
    scores: list[Entry | None] = []
    requests = [
        Request(
            f"{number}" if params.n == 1 else f"{number}.{index}",
            prompt.token_ids,
            params.continuation(index),
            priority=priority,
            cache_salt=prompt.cache_salt,
            prompt=prompt.text,
            prompt_logprobs=scores,
        )
        for index in range(params.n)
    ]
    if can_fork:
        requests[0].forks = requests[1:]
    return requests
