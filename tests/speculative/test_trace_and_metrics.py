"""What became of the drafts is told: in snapshots, in JSON and in numbers."""

import json

import pytest

from llmserve_lab import SamplingParams, Trace
from llmserve_lab.course.load_sweep import step_load
from llmserve_lab.engine.step_load import StepLoad
from tests.engine.reference import ids, tokens_of
from tests.engine.test_engine_metrics import Clock

GREEDY = SamplingParams(temperature=0, max_tokens=14, ignore_eos=True)
PROMPTS = [[1, 2, 3, 4, 5], [9, 9, 9], [20, 21, 22, 23, 24, 25, 26, 27]]


@pytest.fixture
def run(make_spec):
    llm = make_spec("near", num_draft_tokens=3, max_num_batched_tokens=10, trace=True)
    return llm.generate(ids(*PROMPTS), GREEDY), llm.trace, llm.metrics


def test_each_request_tells_what_was_proposed_and_what_of_it_was_right(run):
    outputs, trace, _ = run
    kinds = set()
    texts = {o.request_id: list(o.prompt_token_ids) for o in outputs}
    for step in trace:
        sampled = {}
        for one in step.sampled:
            sampled.setdefault(one.request_id, []).append(one.token_id)
        items = {item.request_id: item for item in step.scheduled}
        for view in step.drafts:
            new = sampled[view.request_id]
            assert list(view.token_ids[: view.num_accepted]) == new[:-1]
            assert view.num_proposed == view.num_accepted + view.num_rejected <= 3
            assert view.has_bonus == (view.num_accepted == view.num_proposed)
            if not view.has_bonus:
                assert new[-1] != view.token_ids[view.num_accepted]
            item = items[view.request_id]
            known = len(texts[view.request_id])
            assert item.start + item.num_tokens == known + view.num_proposed
            kinds.add((view.num_accepted > 0, view.has_bonus))
        for name, new in sampled.items():
            texts[name] += new
            assert len(new) == 1 or name in {view.request_id for view in step.drafts}
    assert kinds >= {(True, True), (True, False), (False, False)}
    assert {o.request_id: [*o.prompt_token_ids, *t] for o, t in zip(
        outputs, tokens_of(outputs), strict=True)} == texts  # fmt: skip


def test_blocks_hold_what_is_computed_and_drafts_are_gone(run):
    _, trace, _ = run
    for step in trace:
        assert step.num_tokens <= 10
        for seen in (*step.running, *step.finished):
            assert seen.num_computed_tokens < seen.num_prompt_tokens + seen.num_output_tokens
            assert len(seen.block_table) * step.block_size >= seen.num_computed_tokens
        owned = [block for seen in step.running for block in seen.block_table]
        assert list(step.block_refs) == [owned.count(b) for b in range(len(step.block_refs))]


def test_metrics_are_the_sums_of_the_trace(run):
    outputs, trace, metrics = run
    views = [view for step in trace for view in step.drafts]
    assert metrics.drafted_sequences == len(views) > 0
    assert metrics.proposed_tokens == sum(view.num_proposed for view in views)
    assert metrics.accepted_tokens == sum(view.num_accepted for view in views)
    rejected = sum(not view.has_bonus for view in views)
    assert metrics.judged_tokens == metrics.accepted_tokens + rejected
    assert metrics.acceptance_rate == metrics.accepted_tokens / metrics.proposed_tokens
    assert metrics.acceptance_probability == metrics.accepted_tokens / metrics.judged_tokens
    assert metrics.mean_accepted_length == 1 + metrics.accepted_tokens / len(views)
    assert metrics.computed_tokens == sum(step.num_tokens for step in trace)
    assert metrics.generation_tokens == sum(map(len, tokens_of(outputs)))


def test_json_keeps_the_drafts(run):
    trace = run[1]
    assert any(step.drafts for step in trace)
    again = Trace.from_json(trace.to_json())
    assert again == trace
    assert all(isinstance(view.token_ids, tuple) for step in again for view in step.drafts)


def test_a_trace_from_before_there_were_drafts_can_be_read(run):
    data = json.loads(run[1].to_json())
    for step in data["steps"]:
        del step["drafts"]
    again = Trace.from_json(json.dumps(data))
    assert len(again) == len(run[1])
    assert all(step.drafts == () for step in again)


def test_time_of_draft_target_and_sampler(make_spec):
    clock = Clock()
    llm = make_spec("same", num_draft_tokens=3, clock=clock)
    engine = llm._engine

    def slow(owner, name, seconds):
        function = getattr(owner, name)

        def later(*args):
            clock.now += seconds
            return function(*args)

        setattr(owner, name, later)

    slow(engine.runner, "run", 10)
    slow(engine.speculation.drafter.runner, "run", 1)
    llm.generate("abc", SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
    metrics = llm.metrics
    assert (metrics.steps, metrics.forward_seconds, metrics.draft_seconds) == (2, 20, 6)
    assert metrics.seconds == 26
    assert metrics.share_outside_forward == metrics.python_share == 0


def test_work_counts_each_draft_as_a_row(make_spec, make_llm):
    """3 drafts of which all are right: 4 tokens through all layers and the output layer."""
    llm, alone = make_spec("same", num_draft_tokens=3), make_llm()
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    for each in (llm, alone):
        each.generate("abc", params)
    work = llm._engine.meter.work
    assert llm.metrics.computed_tokens == 6
    assert alone.metrics.computed_tokens == 6
    assert llm.metrics.flops == work.linear_flops(6, 4) + work.attention_flops(6 * 7 // 2)
    assert llm.metrics.flops == alone.metrics.flops
    assert llm.metrics.num_bytes < alone.metrics.num_bytes / 2


def test_the_drafts_own_work_is_counted_apart(make_spec):
    """A prompt of 3 and two drafts more, one at a time; then the lag of one, and nothing left."""
    llm = make_spec("same", num_draft_tokens=3)
    work = llm._engine.speculation.drafter.work
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    llm.generate("abc", params)
    passes = [StepLoad.prefill(3), StepLoad.decode(1, 4), StepLoad.decode(1, 5)]
    assert llm.metrics.draft_bytes == sum(work.of_load(load).num_bytes for load in passes)
    assert llm.metrics.draft_flops == sum(work.of_load(load).flops for load in passes)


def test_a_step_of_the_trace_asks_for_what_the_engine_counted(make_spec):
    llm = make_spec("near", num_draft_tokens=3, trace=True, max_num_batched_tokens=9)
    llm.generate(ids(*PROMPTS), GREEDY)
    work = llm._engine.meter.work
    found = [work.of_load(step_load(step)) for step in llm.trace]
    assert sum(each.flops for each in found) == llm.metrics.flops
    assert sum(each.num_bytes for each in found) == llm.metrics.num_bytes
