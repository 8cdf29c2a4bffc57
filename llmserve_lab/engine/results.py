"""Gathers the events of one call into results, in the order of its prompts."""

from __future__ import annotations

from collections import deque

from llmserve_lab.engine.logprob import Entry
from llmserve_lab.engine.metrics import RequestMetrics
from llmserve_lab.engine.outputs import CompletionOutput, RequestOutput, TokenEvent
from llmserve_lab.engine.prompts import Prompt
from llmserve_lab.engine.request import Request

Entries = tuple[Entry | None, ...]


class Results:
    """The requests of one call, with the text that has come of each."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.unfinished: set[str] = set()
        self._groups: list[tuple[Prompt, list[Request]]] = []
        self._texts: dict[str, list[str]] = {}
        self.inbox: deque[TokenEvent] = deque()  # noted, not yet handed to the caller

    def add(self, prompt: Prompt, requests: list[Request]) -> None:
        """Expect `requests`, the continuations of one prompt."""
        self._groups.append((prompt, requests))
        for request in requests:
            self.requests[request.request_id] = request
            self.unfinished.add(request.request_id)
            self._texts[request.request_id] = []

    def note(self, event: TokenEvent) -> None:
        """Take in an event of one of `requests`."""
        self._texts[event.request_id].append(event.text)
        self.inbox.append(event)
        if event.finish_reason is not None:
            self.unfinished.discard(event.request_id)

    def outputs(self) -> list[RequestOutput]:
        """One result per prompt."""
        return [self._output(prompt, requests) for prompt, requests in self._groups]

    def _output(self, prompt: Prompt, requests: list[Request]) -> RequestOutput:
        first = requests[0]
        asked = first.params.prompt_logprobs is not None
        scores = tuple(first.prompt_logprobs) if asked else None
        return RequestOutput(
            request_id=first.request_id.split(".")[0],
            prompt=prompt.text,
            prompt_token_ids=tuple(prompt.token_ids),
            outputs=tuple(self._completion(i, r, scores or ()) for i, r in enumerate(requests)),
            prompt_logprobs=scores,
        )

    def _completion(self, index: int, request: Request, before: Entries) -> CompletionOutput:
        """before: scores of the prompt, for `echo`."""
        params, tokens = request.params, request.output_token_ids
        scored = params.logprobs is not None
        return CompletionOutput(
            index=index,
            text="".join(self._texts[request.request_id]),
            token_ids=tuple(request.token_ids if params.echo else tokens),
            finish_reason=request.finish_reason,
            metrics=metrics_of(request),
            logprobs=(*(before if params.echo else ()), *request.logprobs) if scored else None,
            cumulative_logprob=_sum_of(tokens, request.logprobs) if scored else None,
        )


def _sum_of(tokens: list[int], entries: list[Entry]) -> float:
    return sum(entry[token].logprob for token, entry in zip(tokens, entries, strict=False))


def metrics_of(request: Request) -> RequestMetrics:
    """What a request's user felt so far."""
    return RequestMetrics(
        arrival=request.arrival,
        first_scheduled=request.first_scheduled,
        token_times=tuple(request.token_times),
        num_prompt_tokens=request.num_prompt_tokens,
        num_hit_tokens=min(request.num_hit_tokens, request.num_prompt_tokens),
        num_preemptions=request.num_preemptions,
    )
