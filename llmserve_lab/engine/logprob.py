"""How likely the model found a token."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Logprob:
    """logprob: natural logarithm of the probability. rank: 1 plus the number of likelier tokens.
    decoded_token: its text alone, special tokens by name."""

    logprob: float
    rank: int
    decoded_token: str


Entry = dict[int, Logprob]  # of one position, by token id: first the token that is there
