"""How a request's tokens are chosen, and when it ends. Names as in vLLM's offline API."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llmserve_lab.engine.checks import (
    require_bias,
    require_count,
    require_flag,
    require_number,
    require_strings,
    require_token_ids,
)

LARGEST_SEED = 2**63 - 1
LARGEST_PENALTY = 2.0  # of presence and frequency, as in OpenAI's API
GREEDY_BELOW = 1e-5  # temperatures so low that dividing by them would overflow


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """One request's settings.

    n: how many continuations of the prompt.
    temperature: 0 is greedy; logits are divided by it. top_k: keep the k likeliest tokens, 0 all.
    top_p: keep the likeliest tokens that together reach this probability (Holtzman et al. 2020).
    min_p: keep tokens with at least this share of the likeliest one's probability.
    repetition_penalty: above 1 makes tokens of prompt and output less likely: a positive logit is
    divided by it, a negative one multiplied (CTRL, Keskar et al. 2019, section 4.1).
    frequency_penalty, presence_penalty: from -2 to 2, subtracted from a token's logit for each
    time, or once if, it is in the output.
    logit_bias: token id to a number from -100 to 100, added to its logit.
    allowed_token_ids: no other token can be chosen.
    max_tokens, min_tokens: output tokens. stop: strings that end the text and are left out of it.
    stop_token_ids: tokens that end it. ignore_eos: go on past the model's end-of-text token.
    seed: the same text each time, whatever else is in the batch.
    logprobs, prompt_logprobs: how many likeliest tokens to report at each output or prompt
    position, besides the token that is there; 0 only that one, -1 the whole vocabulary.
    echo: put the prompt before the output, in its text, token ids and, where asked, logprobs.

    Raises:
        ValueError, TypeError: a field that makes no sense, by name, or two that contradict.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 16
    min_tokens: int = 0
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)
    allowed_token_ids: Sequence[int] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False

    def __post_init__(self) -> None:
        self._check_choice()
        self._check_edits()
        self._check_length()
        for name in ("ignore_eos", "echo"):
            require_flag(name, getattr(self, name))
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name), at_least=-1)
        if self.echo and self.prompt_logprobs is None:
            self._set("prompt_logprobs", self.logprobs)

    def _check_choice(self) -> None:
        require_count("n", self.n, at_least=1)
        require_number("temperature", self.temperature, 0.0, math.inf)
        require_number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise ValueError("top_p must be above 0: it would leave no token to choose from.")
        require_number("min_p", self.min_p, 0.0, 1.0)
        require_count("top_k", self.top_k, at_least=-1)
        if self.seed is not None:
            require_count("seed", self.seed, at_least=0, at_most=LARGEST_SEED)

    def _check_edits(self) -> None:
        require_number("repetition_penalty", self.repetition_penalty, 0.0, math.inf)
        if self.repetition_penalty == 0:
            raise ValueError("repetition_penalty must be above 0: logits are divided by it.")
        for name in ("presence_penalty", "frequency_penalty"):
            require_number(name, getattr(self, name), -LARGEST_PENALTY, LARGEST_PENALTY)
        if self.logit_bias is not None:
            self._set("logit_bias", require_bias("logit_bias", self.logit_bias))
        if self.allowed_token_ids is not None:
            allowed = require_token_ids("allowed_token_ids", self.allowed_token_ids)
            if not allowed:
                raise ValueError("allowed_token_ids is empty: no token would be left to choose.")
            self._set("allowed_token_ids", allowed)

    def _check_length(self) -> None:
        require_count("max_tokens", self.max_tokens, at_least=1)
        require_count("min_tokens", self.min_tokens, at_least=0)
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens ({self.min_tokens}) is above max_tokens ({self.max_tokens})."
            )
        self._set("stop", require_strings("stop", self.stop))
        self._set("stop_token_ids", require_token_ids("stop_token_ids", self.stop_token_ids))
        self.require_a_choice(self.stop_token_ids)

    def require_a_choice(self, end_token_ids: Any) -> None:
        """Raise unless something is left to choose while it is too early for `end_token_ids`."""
        allowed = self.allowed_token_ids
        if self.min_tokens and allowed is not None and set(allowed) <= set(end_token_ids):
            raise ValueError(
                f"min_tokens ({self.min_tokens}) forbids every one of allowed_token_ids: "
                "they all end the text."
            )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def filters(self) -> bool:
        """Whether top-k, top-p or min-p leave anything out."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def penalises(self) -> bool:
        """Whether it matters which tokens came before."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    @property
    def edits_logits(self) -> bool:
        """Whether the model's logits are changed before a token is chosen."""
        return bool(self.min_tokens or self.allowed_token_ids or self.logit_bias or self.penalises)

    def continuation(self, index: int) -> SamplingParams:
        """The settings of one of `n` continuations: its own seed, and n = 1."""
        seed = None if self.seed is None else (self.seed + index) % (LARGEST_SEED + 1)
        return replace(self, n=1, seed=seed)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return self.stop  # type: ignore[return-value]
