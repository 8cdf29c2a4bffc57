"""Snapshots say what happened: checked against the outputs and against each other."""

import dataclasses
import itertools
import json

import pytest

from llmserve_lab import SamplingParams, Trace
from llmserve_lab.engine.trace import TRACE_FORMAT

PARAMS = SamplingParams(temperature=0, max_tokens=7, ignore_eos=True)
PROMPTS = ["abcdefghij", "klm", "nopqr", "abcdefghijk"]


@pytest.fixture(params=[False, True], ids=["plain", "prefix caching"])
def run(make_llm, request):
    """A run with chunks, preemption and, in one of two, prefix hits."""
    llm = make_llm(
        num_blocks=8,
        max_num_batched_tokens=6,
        trace=True,
        enable_prefix_caching=request.param,
    )
    return llm.generate(PROMPTS, PARAMS), llm.trace


def test_the_run_has_something_of_everything(run):
    outputs, trace = run
    assert any(step.preempted for step in trace)
    assert any(step.waiting for step in trace)
    assert sum(len(step.preempted) for step in trace) == sum(
        output.metrics.num_preemptions for output in outputs
    )


def test_sampled_tokens_and_text_are_the_outputs(run):
    outputs, trace = run
    for output in outputs:
        sampled = [s for step in trace for s in step.sampled if s.request_id == output.request_id]
        assert tuple(s.token_id for s in sampled) == output.outputs[0].token_ids
        assert "".join(s.text for s in sampled) == output.outputs[0].text


def test_scheduled_tokens_follow_one_another(run):
    """Each request's tokens run once, in order; anew from a hit or from 0 after a preemption."""
    _, trace = run
    reached = {}
    for step in trace:
        for name in step.preempted:
            reached.pop(name)
        for item in step.scheduled:
            if item.request_id in reached:
                assert item.start == reached[item.request_id]
            reached[item.request_id] = item.start + item.num_tokens
        assert step.num_tokens == sum(item.num_tokens for item in step.scheduled) <= 6
    assert sorted(reached.values()) == [
        len(prompt) + PARAMS.max_tokens - 1 for prompt in sorted(PROMPTS, key=len)
    ]


def test_scheduled_prompt_tokens_and_hits_add_up(make_llm):
    llm = make_llm(trace=True, max_num_batched_tokens=6, enable_prefix_caching=True, max_num_seqs=1)
    outputs = llm.generate(PROMPTS, PARAMS)
    ran = sum(item.num_prompt_tokens for step in llm.trace for item in step.scheduled)
    hits = sum(step.num_hit_tokens for step in llm.trace)
    assert hits == sum(output.metrics.num_hit_tokens for output in outputs) == 8
    assert ran + hits == sum(map(len, PROMPTS))


def test_blocks_agree_with_reference_counts(run):
    _, trace = run
    for step in trace:
        owned = [block for seen in step.running for block in seen.block_table]
        assert list(step.block_refs) == [owned.count(b) for b in range(len(step.block_refs))]
        assert step.num_blocks_used == len(set(owned))
        assert all(step.block_refs[block] == 0 for block in step.cached_blocks)
        for seen in step.running:
            assert len(seen.block_table) * step.block_size >= seen.num_computed_tokens
        assert all(seen.block_table == () for seen in step.waiting)


def test_states_are_what_the_lists_say(run):
    outputs, trace = run
    for step in trace:
        for state in ("waiting", "running", "finished"):
            assert {seen.state for seen in getattr(step, state)} <= {state}
    ended = [seen for step in trace for seen in step.finished]
    assert {seen.request_id for seen in ended} == {output.request_id for output in outputs}
    assert all(seen.num_output_tokens == 7 and seen.block_table for seen in ended)


def test_snapshots_cannot_be_changed(run):
    step = run[1][0]
    for thing, name in ((step, "step"), (step.scheduled[0], "start"), (step.running[0], "state")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, 5)
    for field in dataclasses.fields(step):
        assert isinstance(hash(getattr(step, field.name)), int)


def test_earlier_snapshots_stay_as_they_were(make_llm):
    llm = make_llm(trace=True)
    events = llm.stream(PROMPTS, PARAMS)
    next(events)
    first, text = llm.trace[0], Trace([llm.trace[0]]).to_json()
    list(events)
    assert llm.trace[0] is first
    assert Trace([first]).to_json() == text


def test_the_trace_grows_as_the_stream_is_consumed(make_llm):
    llm = make_llm(trace=True)
    lengths = [len(llm.trace) for _ in llm.stream("abc", PARAMS)]
    assert lengths == [1, 2, 3, 4, 5, 6, 7]
    assert [step.step for step in llm.trace] == list(range(7))


def test_times_are_on_one_clock(run):
    steps = list(run[1])
    assert steps[0].started == 0
    for before, after in itertools.pairwise(steps):
        assert before.seconds >= 0
        assert after.started >= before.started + before.seconds


def test_to_json_and_back(run):
    trace = run[1]
    again = Trace.from_json(trace.to_json())
    assert again == trace
    assert hash(again[0].block_refs) == hash(trace[0].block_refs)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "3", "null", "{}", '"text"', '{"format": 1}',
        json.dumps({"format": TRACE_FORMAT + 1, "steps": []}),
        json.dumps({"format": TRACE_FORMAT, "steps": [{}]}),
        json.dumps({"format": TRACE_FORMAT, "steps": [3]}),
        json.dumps({"format": TRACE_FORMAT, "steps": 3}),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused(text):
    with pytest.raises(ValueError, match=r"not a trace of format 1; write one with") as error:
        Trace.from_json(text)
    assert "\n" not in str(error.value)


def test_an_aborted_request_leaves_the_trace_consistent(make_llm):
    llm = make_llm(trace=True)
    llm.add_request("abc", PARAMS)
    llm.add_request("xyz", PARAMS)
    llm.step()
    llm.abort("0")
    llm.step()
    assert [seen.request_id for seen in llm.trace[-1].running] == ["1"]
    assert [(seen.request_id, seen.state) for seen in llm.trace[-1].finished] == [("0", "finished")]
    assert llm.trace[-1].finished[0].block_table == ()
    llm.abort("1")
    llm.step()
