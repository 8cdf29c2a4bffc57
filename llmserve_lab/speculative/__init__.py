"""Speculative decoding: guesses of what comes next, checked by the model several at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.lazy import export

if TYPE_CHECKING:
    from llmserve_lab.speculative.prompt_lookup import PromptLookup
    from llmserve_lab.speculative.proposer import Proposer
    from llmserve_lab.speculative.theory import (
        acceptance_probability,
        expected_speedup,
        expected_tokens,
    )

__all__ = [
    "PromptLookup",
    "Proposer",
    "acceptance_probability",
    "expected_speedup",
    "expected_tokens",
]

export(
    __name__,
    {
        "PromptLookup": "llmserve_lab.speculative.prompt_lookup",
        "Proposer": "llmserve_lab.speculative.proposer",
        "acceptance_probability": "llmserve_lab.speculative.theory",
        "expected_speedup": "llmserve_lab.speculative.theory",
        "expected_tokens": "llmserve_lab.speculative.theory",
    },
)
