"""Percentiles, goodput and what failures do to them."""

import numpy
import pytest

from llmserve_lab.engine.metrics import RequestMetrics
from llmserve_lab.simulate import SLO, Ask, LoadResult, Outcome


def outcome(arrival, times, reason="length", **more):
    metrics = RequestMetrics(arrival, times[0] if times else None, tuple(times), 10, **more)
    return Outcome(Ask(arrival, 10, max(1, len(times))), "x", reason, metrics)


RESULT = LoadResult(
    (
        outcome(0.0, (1.0, 1.5, 2.5), num_hit_tokens=5),
        outcome(1.0, (4.0,)),
        outcome(1.0, (1.25, 9.0), "abort"),
        outcome(2.0, (), "error"),
    ),
    started=0.0, ended=10.0, num_steps=7, num_blocks=8, peak_blocks=2,
)  # fmt: skip


def test_only_finished_requests_have_metrics():
    assert RESULT.values("ttft") == [1.0, 3.0]
    assert RESULT.values("tpot") == [0.75]  # one token has none
    assert RESULT.values("e2e") == [2.5, 3.0]
    assert RESULT.values("inter_token_gaps") == [0.5, 1.0]
    assert RESULT.num_output_tokens == 6
    assert RESULT.output_throughput == 0.6
    assert RESULT.hit_rate == 5 / 40


def test_failures_stay_in_the_denominator():
    assert RESULT.attainment(SLO()) == 0.5
    assert RESULT.attainment(SLO(ttft=2.0)) == 0.25
    assert RESULT.attainment(SLO(ttft=2.0, tpot=0.5)) == 0.0
    assert RESULT.attainment(SLO(ttft=1.0, tpot=0.75, e2e=2.5)) == 0.25  # a limit is still good
    assert RESULT.goodput(SLO(ttft=2.0)) == 0.1
    assert RESULT.request_throughput == 0.2


def test_percentiles_are_those_of_numpy():
    many = LoadResult(tuple(outcome(0.0, (float(i * i),)) for i in range(1, 38)), 0, 1, 1, 1, 1)
    values = [i * i for i in range(1, 38)]
    for percent in (0, 1, 50, 95, 99.9, 100):
        assert many.percentile("ttft", percent) == pytest.approx(numpy.percentile(values, percent))


def test_the_summary_has_the_usual_figures():
    figures = RESULT.summary()
    assert figures["requests"] == 4
    assert figures["finished"] == 2
    assert figures["peak_kv_use"] == 0.25
    assert (figures["ttft_p50"], figures["tpot_p95"]) == (2.0, 0.75)
    nothing = LoadResult((outcome(0.0, (), "error"),), 0.0, 0.0, 0, 8, 0)
    assert nothing.summary()["output_tokens_per_s"] == 0


def test_bad_questions_are_named():
    with pytest.raises(ValueError, match="no metric 'latency'; there are ttft, tpot"):
        RESULT.percentile("latency", 50)
    with pytest.raises(ValueError, match="percent must be"):
        RESULT.percentile("ttft", 101)
    with pytest.raises(ValueError, match="No finished request has a tpot"):
        LoadResult((outcome(0.0, (1.0,)),), 0, 1, 1, 1, 1).percentile("tpot", 50)
