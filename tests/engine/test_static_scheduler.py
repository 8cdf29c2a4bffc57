"""Static batches: how they are formed, that nobody takes an empty place, and how they wait."""

import threading
import time

import pytest

from llmserve_lab import LLM, SamplingParams, StaticBatchingScheduler
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Limits
from tests.engine.counting_model import build
from tests.engine.reference import ids, tokens_of

WIDE = Limits(8, 64)


def request(name, prompt=(1, 1), max_tokens=3):
    return Request(name, list(prompt), SamplingParams(max_tokens=max_tokens, ignore_eos=True))


def engine_of(batch_size, max_wait=0.0, num_blocks=32, limits=WIDE):
    return build(num_blocks, 2, limits, scheduler=StaticBatchingScheduler(batch_size, max_wait))


def ran(engine):
    """One step: the names that ran in it."""
    seen, run = [], engine.runner.run
    engine.runner.run = lambda batch: seen.extend(i.request.request_id for i in batch) or run(batch)
    engine.step()
    engine.runner.run = run
    return seen


def test_a_batch_runs_to_the_longest_before_anybody_else_starts():
    engine = engine_of(batch_size=2)
    for name, length in (("a", 1), ("b", 4), ("c", 2), ("d", 1), ("e", 1)):
        engine.add(request(name, max_tokens=length))
    steps = []
    while engine.has_work:
        steps.append("".join(ran(engine)))
    assert steps == ["ab", "b", "b", "b", "cd", "c", "e"]


def test_an_early_end_gives_back_blocks_and_no_place():
    engine = engine_of(batch_size=2)
    for name, length in (("a", 1), ("b", 4), ("c", 1)):
        engine.add(request(name, max_tokens=length))
    engine.step()
    assert engine.scheduler.pool.num_used == 1
    assert ran(engine) == ["b"]
    assert [r.request_id for r in engine.scheduler.waiting] == ["c"]


def test_all_prompts_come_before_anybodys_second_token():
    engine = engine_of(batch_size=3, limits=Limits(8, 4))
    for name in "abc":
        engine.add(request(name, prompt=[1] * 3, max_tokens=2))
    assert [ran(engine) for _ in range(4)] == [["a", "b"], ["b", "c"], ["c"], ["a", "b", "c"]]


def test_a_batch_starts_when_it_is_full_or_its_oldest_has_waited():
    engine = engine_of(batch_size=3, max_wait=0.5)
    engine.add(request("a"))
    engine.clock.now += 0.25
    engine.add(request("b"))
    assert ran(engine) == []
    engine.wait()
    assert (engine.clock.waits, engine.clock()) == ([0.25], 0.5)
    assert ran(engine) == ["a", "b"]
    while engine.has_work:
        engine.step()
    for name in "cde":
        engine.add(request(name))
    assert ran(engine) == ["c", "d", "e"]
    engine.wait()
    assert engine.clock.waits == [0.25]


def test_an_abort_while_it_collects_ends_the_request_and_moves_the_time():
    engine = engine_of(batch_size=3, max_wait=0.5)
    engine.add(request("a"))
    engine.clock.now += 0.25
    engine.add(request("b"))
    engine.step()
    engine.abort("a")
    assert [event.finish_reason for event in engine.step()] == ["abort"]
    engine.wait()
    assert engine.clock() == 0.75
    assert ran(engine) == ["b"]


def test_an_abort_of_the_last_one_under_way_starts_the_next_batch():
    engine = engine_of(batch_size=2)
    for name, length in (("a", 1), ("b", 9), ("c", 2)):
        engine.add(request(name, max_tokens=length))
    engine.step()
    engine.abort("b")
    assert ran(engine) == ["c"]


def test_a_batch_holds_what_fits_to_its_end_so_nobody_is_preempted():
    engine = engine_of(batch_size=4, num_blocks=8)
    requests = [request(name, max_tokens=6) for name in "abc"]  # 4 blocks each at the end
    for one in requests:
        engine.add(one)
    assert ran(engine) == ["a", "b"]
    while engine.has_work:
        engine.step()
    assert [one.num_preemptions for one in requests] == [0, 0, 0]


@pytest.mark.parametrize("limits", [Limits(4, 64), Limits(64, 4)])
def test_a_batch_larger_than_the_limits_is_refused(limits):
    scheduler = StaticBatchingScheduler(8)
    with pytest.raises(ValueError, match=r"batch_size \(8\) is above max_num_"):
        build(32, 2, limits, scheduler=scheduler)
    build(32, 2, WIDE, scheduler=scheduler)


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"batch_size": 2.0}, TypeError, "batch_size must be a whole number"),
        ({"max_wait": -1}, ValueError, "max_wait"),
        ({"max_wait": float("inf")}, ValueError, "max_wait must be a finite number"),
        ({"max_wait": "1"}, TypeError, "max_wait must be a number"),
    ],
)
def test_settings(settings, kind, words):
    with pytest.raises(kind, match=words):
        StaticBatchingScheduler(**settings)


def test_one_scheduler_serves_one_engine(make_llm, tiny):
    scheduler = StaticBatchingScheduler(2)
    make_llm(scheduler=scheduler)
    with pytest.raises(ValueError, match="serves another engine"):
        LLM(tiny, num_blocks=8, scheduler=scheduler)


def test_generate_waits_without_spinning(make_llm, monkeypatch):
    """A lone request of a batch of four waits its time, in few steps, and has the same tokens."""
    greedy = SamplingParams(temperature=0, max_tokens=4)
    scheduler = StaticBatchingScheduler(4, max_wait=0.2)
    llm = make_llm(scheduler=scheduler, trace=True)
    asked, original = [], scheduler.schedule
    monkeypatch.setattr(scheduler, "schedule", lambda: asked.append(1) or original())
    (output,) = llm.generate("abc", greedy)
    assert tokens_of([output]) == tokens_of(make_llm().generate("abc", greedy))
    assert output.metrics.queue_time >= 0.2
    assert len(llm.trace) == len(output.outputs[0].token_ids)  # no picture of an empty step
    assert len(asked) <= len(llm.trace) + 3


def test_a_waiting_step_is_woken_by_a_request_from_another_thread(make_llm):
    llm = make_llm(scheduler=StaticBatchingScheduler(2, max_wait=3600.0))
    greedy = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    outputs = []
    worker = threading.Thread(target=lambda: outputs.extend(llm.generate("abc", greedy)))
    worker.start()
    while not llm.has_work:
        time.sleep(0.001)
    llm.add_request("xyz", greedy)
    worker.join(60)
    assert not worker.is_alive()
    assert outputs[0].finished
    while llm.has_work:
        llm.step()


def test_a_waiting_step_is_woken_by_an_abort_from_another_thread(make_llm):
    llm = make_llm(scheduler=StaticBatchingScheduler(2, max_wait=3600.0))
    outputs = []
    worker = threading.Thread(target=lambda: outputs.extend(llm.generate(ids([1, 2]))))
    worker.start()
    while not llm.has_work:
        time.sleep(0.001)
    llm.abort("0")
    worker.join(60)
    assert not worker.is_alive()
    assert outputs[0].outputs[0].finish_reason == "abort"
