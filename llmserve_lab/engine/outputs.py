"""What comes out of the engine: an event per token, and a result per prompt."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_lab.engine.logprob import Entry
from llmserve_lab.engine.metrics import RequestMetrics


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """Output token `index` of a request. `text` is what can be shown now: empty while a character
    or a possible stop string is unfinished. `seconds` is when, on the engine's clock. An aborted
    request ends with an event without a token. logprobs: of this token and the likeliest ones,
    where asked for. With `echo` the first event's text begins with the prompt."""

    request_id: str
    index: int
    token_id: int | None
    text: str
    finish_reason: str | None
    seconds: float
    logprobs: Entry | None = None


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One continuation. finish_reason: "stop", "length" or "abort". logprobs: per token the token
    itself and the likeliest ones, by token id; None where not asked for. cumulative_logprob: their
    sum over the output's tokens. With `echo` text, token_ids and logprobs begin with the prompt."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    metrics: RequestMetrics
    logprobs: tuple[Entry | None, ...] | None = None
    cumulative_logprob: float | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """One prompt's result; `outputs` holds `SamplingParams.n` continuations. prompt_logprobs: per
    prompt token, None for the first, shorter if an abort came before all were read."""

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    prompt_logprobs: tuple[Entry | None, ...] | None = None

    @property
    def finished(self) -> bool:
        return all(output.finish_reason is not None for output in self.outputs)

    @property
    def metrics(self) -> RequestMetrics:
        """Of the continuation that ended last."""
        return max(
            (output.metrics for output in self.outputs),
            key=lambda metrics: metrics.token_times[-1:] or (metrics.arrival,),
        )
