"""What came of a workload: each request's times, and figures over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from llmserve_lab.engine.checks import require_number
from llmserve_lab.engine.metrics import RequestMetrics
from llmserve_lab.engine.trace import Trace
from llmserve_lab.simulate.slo import SLO
from llmserve_lab.simulate.workload import Ask

METRICS = ("ttft", "tpot", "e2e", "queue_time", "inter_token_gaps")
FINISHED = ("length", "stop")
REPORTED = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request's end. finish_reason: "length" or "stop", "abort" if its client left, "error" if
    it could never fit and was refused at once."""

    ask: Ask
    request_id: str
    finish_reason: str
    metrics: RequestMetrics

    @property
    def finished(self) -> bool:
        return self.finish_reason in FINISHED


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A run of a workload, simulated or real; both have the same form. Times are in seconds.

    outcomes: in the order in which the requests ended. started, ended: on the engine's clock.
    peak_blocks: the most KV blocks in use after any step.
    """

    outcomes: tuple[Outcome, ...]
    started: float
    ended: float
    num_steps: int
    num_blocks: int
    peak_blocks: int
    trace: Trace | None = None

    @property
    def seconds(self) -> float:
        """From the start to the end of the last request."""
        return self.ended - self.started

    @property
    def finished(self) -> tuple[RequestMetrics, ...]:
        """Of the requests that neither failed nor were aborted."""
        return tuple(outcome.metrics for outcome in self.outcomes if outcome.finished)

    @property
    def num_output_tokens(self) -> int:
        return sum(len(outcome.metrics.token_times) for outcome in self.outcomes)

    @property
    def output_throughput(self) -> float:
        """Output tokens per second over all requests."""
        return self._per_second(self.num_output_tokens)

    @property
    def request_throughput(self) -> float:
        """Finished requests per second."""
        return self._per_second(len(self.finished))

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that the prefix cache saved."""
        metrics = [outcome.metrics for outcome in self.outcomes]
        asked = sum(m.num_prompt_tokens for m in metrics)
        return sum(m.num_hit_tokens for m in metrics) / asked if asked else 0.0

    @property
    def num_preemptions(self) -> int:
        return sum(outcome.metrics.num_preemptions for outcome in self.outcomes)

    def values(self, metric: str) -> list[float]:
        """One metric of each finished request that has it, in ascending order; of
        "inter_token_gaps" every gap.

        Raises:
            ValueError: no such metric.
        """
        if metric not in METRICS:
            raise ValueError(f"There is no metric {metric!r}; there are {', '.join(METRICS)}.")
        found = [getattr(metrics, metric) for metrics in self.finished]
        if metric == "inter_token_gaps":
            found = list(chain.from_iterable(found))
        return sorted(value for value in found if value is not None)

    def percentile(self, metric: str, percent: float) -> float:
        """E.g. percentile("ttft", 95).

        Raises:
            ValueError: no such metric, no request that has it, or a percent beyond 0 to 100.
        """
        values = self.values(metric)
        if not values:
            raise ValueError(f"No finished request has a {metric}.")
        return percentile(values, percent)

    def attainment(self, slo: SLO) -> float:
        """The share of all requests that finished and met the objective: what failed missed it."""
        return sum(map(slo.met_by, self.finished)) / len(self.outcomes)

    def goodput(self, slo: SLO) -> float:
        """Requests per second that finished and met the objective."""
        return self._per_second(sum(map(slo.met_by, self.finished)))

    def summary(self) -> dict[str, float]:
        """The usual figures by name, ready for a table or JSON."""
        figures = {
            "seconds": self.seconds,
            "requests": len(self.outcomes),
            "finished": len(self.finished),
            "output_tokens_per_s": self.output_throughput,
            "requests_per_s": self.request_throughput,
            "hit_rate": self.hit_rate,
            "preemptions": self.num_preemptions,
            "peak_kv_use": self.peak_blocks / self.num_blocks,
        }
        for metric in METRICS[:-1]:
            values = self.values(metric)
            if values:
                figures |= {f"{metric}_p{p}": percentile(values, p) for p in REPORTED}
        return figures

    def _per_second(self, count: float) -> float:
        return count / self.seconds if self.seconds > 0 else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Of ascending `values`, with linear interpolation between neighbours (numpy's default)."""
    require_number("percent", percent, 0.0, 100.0)
    position = (len(values) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (position - below)
