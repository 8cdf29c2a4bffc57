"""Batch composition draws the tokens that ran, the budget above them and the queue below."""

from __future__ import annotations

import dataclasses

import pytest

from llmserve_lab import plots
from llmserve_lab.engine.trace import Trace
from llmserve_lab.plots import theme
from llmserve_lab.plots.describe import describe
from llmserve_lab.plots.display import require_readable


def with_budget(trace: Trace, budget: int) -> Trace:
    steps = [dataclasses.replace(step, max_num_batched_tokens=budget) for step in trace]
    return Trace(steps)


def named(figure, name):
    (found,) = [t for t in figure.data if t.name == name]
    return found


def heights(figure, name):
    bars = named(figure, name)
    return dict(zip(bars.x, bars.y, strict=True))


def test_it_asks_a_question_and_can_be_read(trace):
    figure = plots.batch_composition(trace)
    require_readable(figure)
    assert figure.layout.title.text.endswith("?")


def test_prefill_and_decode_add_up_to_the_steps_tokens(trace):
    figure = plots.batch_composition(trace)
    prefill, decode = heights(figure, "prefill"), heights(figure, "decode")
    assert figure.layout.barmode == "stack"
    for step in trace:
        prompt = sum(item.num_prompt_tokens for item in step.scheduled)
        assert (prefill[step.step], decode[step.step]) == (prompt, step.num_tokens - prompt)


def test_the_queue_has_a_panel_of_its_own(trace):
    figure = plots.batch_composition(trace)
    queue = named(figure, theme.QUEUE.label)
    assert list(queue.y) == [len(step.waiting) for step in trace]
    assert queue.yaxis != named(figure, "decode").yaxis
    assert max(queue.y) > 0


def test_colours_and_patterns_are_those_of_the_course(trace):
    figure = plots.batch_composition(trace)
    for mark in (theme.PREFILL, theme.DECODE, theme.QUEUE):
        marker = named(figure, mark.label).marker
        assert (marker.color, marker.pattern.shape) == (mark.colour, mark.pattern)


def test_a_budget_within_reach_is_a_line_and_counts_the_steps_that_reach_it(trace):
    most = max(step.num_tokens for step in trace)
    reached = sum(step.num_tokens == most for step in trace)
    figure = plots.batch_composition(with_budget(trace, most))
    line = named(figure, f"budget: {most} tokens")
    assert set(line.y) == {most} and line.line.dash == "dash"
    assert f"The budget is {most} tokens, which {reached} step" in describe(figure)


def test_a_budget_far_above_does_not_flatten_the_bars(trace):
    most = max(step.num_tokens for step in trace)
    figure = plots.batch_composition(with_budget(trace, 100 * most))
    line = named(figure, f"budget: {100 * most} tokens, far above")
    assert list(line.y) == [None]
    assert figure.layout.yaxis.range[1] < 2 * most


def test_without_a_known_budget_there_is_no_line(trace):
    figure = plots.batch_composition(trace)
    assert not [t for t in figure.data if (t.name or "").startswith("budget")]
    assert "budget" not in describe(figure)


def test_in_words_it_tells_kinds_peak_and_queue(trace):
    text = describe(plots.batch_composition(trace))
    prefill = sum(i.num_prompt_tokens for s in trace for i in s.scheduled)
    decode = sum(s.num_tokens for s in trace) - prefill
    longest = max(len(step.waiting) for step in trace)
    assert f"{len(trace)} steps ran {prefill} prompt and {decode} decode tokens" in text
    assert f"at most {longest} requests wait" in text


def test_an_empty_trace_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="trace=True"):
        plots.batch_composition(Trace())


def test_the_budget_comes_with_a_real_trace(make_llm):
    llm = make_llm(trace=True, max_num_batched_tokens=6)
    llm.generate(["abcdefghijkl", "abc"])
    assert {step.max_num_batched_tokens for step in llm.trace} == {6}
    assert any(t.name == "budget: 6 tokens" for t in plots.batch_composition(llm.trace).data)
