"""What a request's user felt. Definitions as in vLLM's serving benchmark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Times in seconds on one clock; `token_times[i]` is when output token i was ready."""

    arrival: float
    first_scheduled: float | None
    token_times: tuple[float, ...]
    num_prompt_tokens: int
    num_hit_tokens: int = 0  # prompt tokens that the prefix cache saved
    num_preemptions: int = 0

    @property
    def queue_time(self) -> float | None:
        """Arrival to the first step that ran any of its tokens."""
        return None if self.first_scheduled is None else self.first_scheduled - self.arrival

    @property
    def ttft(self) -> float | None:
        """Time to first token, from arrival."""
        return self.token_times[0] - self.arrival if self.token_times else None

    @property
    def e2e(self) -> float | None:
        """End-to-end latency: arrival to the last token."""
        return self.token_times[-1] - self.arrival if self.token_times else None

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first; None with fewer than two tokens."""
        if len(self.token_times) < 2:
            return None
        return (self.token_times[-1] - self.token_times[0]) / (len(self.token_times) - 1)

    @property
    def inter_token_gaps(self) -> tuple[float, ...]:
        """Seconds between neighbouring tokens."""
        return tuple(
            after - before
            for before, after in zip(self.token_times, self.token_times[1:], strict=False)
        )
