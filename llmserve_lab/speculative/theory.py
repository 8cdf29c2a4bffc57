"""What speculative decoding can be expected to bring (Leviathan et al. 2023, sections 2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence

from llmserve_lab.engine.checks import require_count, require_number


def acceptance_probability(p: Sequence[float], q: Sequence[float]) -> float:
    """How likely a draft drawn from q is accepted where the target's distribution is p: the sum of
    min(p, q), the overlap of the two (theorem 3.5)."""
    return sum(min(left, right) for left, right in zip(p, q, strict=True))


def expected_tokens(alpha: float, num_draft_tokens: int) -> float:
    """Tokens that a step brings on average, the target's own one included: (1 - alpha^(n+1)) /
    (1 - alpha), if each draft is accepted with probability alpha, independently (equation 1)."""
    require_number("alpha", alpha, 0.0, 1.0)
    require_count("num_draft_tokens", num_draft_tokens, at_least=0)
    return sum(alpha**count for count in range(num_draft_tokens + 1))


def expected_speedup(alpha: float, num_draft_tokens: int, cost: float) -> float:
    """How many times as fast as without drafts, if a pass of the draft model takes `cost` of the
    target's, and the target checks all drafts in the time of one token (theorem 3.8). With a large
    batch, or on a processor that is busy computing, checking takes longer than that."""
    require_number("cost", cost, 0.0, float("inf"))
    return expected_tokens(alpha, num_draft_tokens) / (num_draft_tokens * cost + 1)
