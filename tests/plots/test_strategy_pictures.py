"""The pictures of chapter 09 draw what ran."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmserve_lab import plots
from llmserve_lab.course.strategies import StrategyRun
from llmserve_lab.engine.trace import DraftView, SampledView, ScheduledView, Trace
from llmserve_lab.plots.display import require_readable


def run(name, steps, tokens, num_bytes, kv):
    return StrategyRun(name, steps, tokens, num_bytes, kv, 0, 0, 1, 1.0, 1.0, 1.0, (), None)


NONE, OTHER = run("none", 100, 50, 10.0, 8), run("other", 50, 75, 10.0, 2)


def with_drafts(trace):
    """The last step's first request gets 4 drafts, of which 2 are right."""
    last = trace[-1]
    item = last.scheduled[0]
    name = item.request_id
    wider = ScheduledView(name, item.start, item.num_tokens + 4, item.num_prompt_tokens)
    sampled = tuple(SampledView(name, token, "t") for token in (7, 8, 9))
    changed = replace(
        last,
        scheduled=(wider, *last.scheduled[1:]),
        sampled=(*sampled, *(s for s in last.sampled if s.request_id != name)),
        drafts=(DraftView(name, (7, 8, 1, 2), 2),),
    )
    return Trace([*trace.steps[:-1], changed])


def stop(figure, index):
    """The bars of a stop: (left end, width, row, hover)."""
    shown = figure.layout.sliders[0].steps[index].args[1]
    chosen = [trace for trace, on in zip(figure.data, shown, strict=True) if on and trace.hovertext]
    return [
        bar
        for trace in chosen
        for bar in zip(trace.base, trace.x, trace.y, trace.hovertext, strict=True)
    ]


class TestServingFlow:
    def test_a_stop_for_each_step_with_all_that_waits_and_runs(self, trace):
        figure = plots.serving_flow(trace)
        require_readable(figure)
        steps = list(trace)
        assert len(figure.layout.sliders[0].steps) == len(steps)
        for index, step in enumerate(steps):
            hovers = [hover for *_, hover in stop(figure, index)]
            assert sum(hover.endswith("waits") for hover in hovers) == len(step.waiting)
            assert sum("prompt tokens" in hover for hover in hovers) == sum(
                item.num_prompt_tokens > 0 for item in step.scheduled
            )
            assert sum("the model's own" in hover for hover in hovers) == len(step.sampled)

    def test_drafts_are_told_apart(self, trace):
        trace = with_drafts(trace)
        hovers = [hover for *_, hover in stop(plots.serving_flow(trace), len(trace) - 1)]
        assert sum(": draft " in hover for hover in hovers) == 4
        assert sum("a draft that was right" in hover for hover in hovers) == 2
        assert sum("a draft thrown away" in hover for hover in hovers) == 2

    def test_nothing_leaves_its_column(self, trace):
        figure = plots.serving_flow(with_drafts(trace))
        for index in range(len(trace)):
            for base, width, *_ in stop(figure, index):
                assert base + width <= figure.layout.xaxis.range[1]

    def test_an_empty_trace_is_refused(self):
        with pytest.raises(ValueError, match="no steps"):
            plots.serving_flow(Trace())


class TestStrategyEffects:
    def test_bars_are_shares_of_the_first_run(self):
        figure = plots.strategy_effects([NONE, OTHER])
        require_readable(figure)
        assert [list(trace.x) for trace in figure.data] == [
            [100, 50], [100, 150], [100, 100], [100, 25],
        ]  # fmt: skip
        assert "tokens computed: other 150" in figure.layout.meta["alt"]

    @pytest.mark.parametrize("runs", [[], [NONE], [replace(NONE, steps=0), OTHER]])
    def test_nothing_to_compare_is_refused(self, runs):
        with pytest.raises(ValueError, match="a run to compare with"):
            plots.strategy_effects(runs)


class TestDraftGain:
    def test_points_and_curves(self):
        figure = plots.draft_gain({1: 1.4, 4: 2.0}, alpha=0.5)
        require_readable(figure)
        own = [trace for trace in figure.data if trace.name == "calculated, 50% right"][-1]
        assert list(own.y) == [1, 1.5, 1.75, 1.875, 1.9375]
        assert list(figure.data[-1].y) == [1.4, 2.0]
        with pytest.raises(ValueError, match="at least one"):
            plots.draft_gain({}, 0.5)


class TestDraftSpeedup:
    def test_a_stop_for_each_acceptance_with_a_curve_for_each_number(self):
        figure = plots.draft_speedup(lambda a, n, b: a * n / b, [1, 2], [2, 4], [0.5, 0.8])
        require_readable(figure)
        assert len(figure.layout.sliders[0].steps) == 2
        assert [list(trace.y) for trace in figure.data[1:]] == [
            [1, 0.5], [2, 1], [1.6, 0.8], [3.2, 1.6],
        ]  # fmt: skip
        assert "below 1 from batch 2 on" in figure.layout.meta["alt"]

    def test_nothing_to_draw_is_refused(self):
        with pytest.raises(ValueError, match="draft_speedup needs"):
            plots.draft_speedup(lambda a, n, b: 1.0, [], [2], [0.5])
