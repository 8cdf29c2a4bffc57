"""What users were promised: a service level objective."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llmserve_lab.engine.metrics import RequestMetrics


@dataclass(frozen=True, slots=True)
class SLO:
    """The longest that is good enough, in seconds, for each request."""

    ttft: float = math.inf
    tpot: float = math.inf
    e2e: float = math.inf

    def met_by(self, metrics: RequestMetrics) -> bool:
        """Whether a finished request was good enough. One token has no TPOT to miss."""
        pairs = ((metrics.ttft, self.ttft), (metrics.tpot, self.tpot), (metrics.e2e, self.e2e))
        return all(value is None or value <= limit for value, limit in pairs)
