"""generate, stream, step and abort, mixed and interrupted: nothing lost, nothing left behind."""

import threading

import pytest

from llmserve_lab import SamplingParams
from tests.engine.reference import greedy_tokens, tokens_of

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


def greedy(tiny, text, count=6):
    """The greedy tokens after `text`, past an end-of-text token too."""
    tokens = list(tiny.tokenizer(text)["input_ids"])
    start = len(tokens)
    for _ in range(count):
        tokens += greedy_tokens(tiny.model, tokens, 1)
    return tuple(tokens[start:])


def finish(llm):
    """Step until nothing is left; the events by request."""
    events = {}
    while llm.has_work:
        for event in llm.step():
            events.setdefault(event.request_id, []).append(event)
    return events


def test_results_come_in_the_order_of_the_prompts(make_llm, tiny):
    prompts = ["first prompt", "b", {"prompt_token_ids": [1, 2, 3]}, "abc"]
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (9, 1, 5, 3)]
    outputs = make_llm(max_num_seqs=2).generate(prompts, params)
    assert [output.prompt for output in outputs] == ["first prompt", "b", None, "abc"]
    assert [len(tokens) for tokens in tokens_of(outputs)] == [9, 1, 5, 3]
    assert outputs[2].prompt_token_ids == (1, 2, 3)
    assert outputs[3].outputs[0].token_ids == greedy(tiny, "abc", 3)
    assert all(output.finished for output in outputs)


def test_nothing_in_nothing_out(make_llm):
    assert make_llm().generate([], GREEDY) == []


def test_a_stream_gives_every_token_in_order(make_llm):
    llm = make_llm()
    outputs = llm.generate(["abc", "hello"], GREEDY)
    events = list(llm.stream(["abc", "hello"], GREEDY))
    for output, name in zip(outputs, ("2", "3"), strict=True):
        mine = [event for event in events if event.request_id == name]
        assert [event.index for event in mine] == list(range(6))
        assert tuple(event.token_id for event in mine) == output.outputs[0].token_ids
        assert "".join(event.text for event in mine) == output.outputs[0].text
        assert [event.finish_reason for event in mine] == [None] * 5 + ["length"]
    assert [event.seconds for event in events] == sorted(event.seconds for event in events)


def test_a_stream_is_lazy_and_checks_at_once(make_llm):
    llm = make_llm()
    unused = llm.stream("abc", GREEDY)
    assert not llm.has_work
    with pytest.raises(ValueError, match="empty"):
        llm.stream("", GREEDY)
    unused.close()


@pytest.mark.parametrize("taken", [1, 2, 5])
def test_closing_a_stream_half_way_frees_everything(make_llm, taken):
    llm = make_llm(num_blocks=20)
    events = llm.stream(["abc", "de", "f"], LONG)
    for _ in range(taken):
        next(events)
    assert llm.pool.num_used > 0
    events.close()
    assert llm.pool.num_used == 0
    assert not llm.has_work


def test_breaking_out_of_a_stream_frees_everything(make_llm):
    llm = make_llm()
    for _ in llm.stream(["abc", "de"], LONG):
        break
    assert llm.pool.num_used == 0


def test_two_streams_at_once_each_get_their_own(make_llm, tiny):
    llm = make_llm()
    pairs = list(zip(llm.stream("abc", GREEDY), llm.stream("xyz", GREEDY), strict=True))
    assert tuple(first.token_id for first, _ in pairs) == greedy(tiny, "abc")
    assert tuple(second.token_id for _, second in pairs) == greedy(tiny, "xyz")


def test_a_stream_whose_tokens_all_came_during_another_call(make_llm, tiny):
    llm = make_llm()
    events = llm.stream("abc", GREEDY)
    first = next(events)
    other = llm.generate("xyz", SamplingParams(temperature=0, max_tokens=20, ignore_eos=True))
    assert tokens_of(other) == [greedy(tiny, "xyz", 20)]
    rest = list(events)
    assert tuple(e.token_id for e in (first, *rest)) == greedy(tiny, "abc")


def test_added_requests_are_kept_for_step_while_generate_runs(make_llm, tiny):
    llm = make_llm()
    (name,) = llm.add_request("abc", GREEDY)
    other = llm.generate("xyz", LONG)
    assert tokens_of(other) == [greedy(tiny, "xyz", 60)]
    events = llm.step()
    assert tuple(event.token_id for event in events) == greedy(tiny, "abc")
    assert {event.request_id for event in events} == {name}
    assert llm.step() == []


def test_events_of_others_survive_a_stream_that_is_closed(make_llm, tiny):
    """The step that made them was asked for by the stream, which closes before it sees them."""
    llm = make_llm()
    events = llm.stream("xyz", LONG)
    next(events)
    (name,) = llm.add_request("abc", GREEDY)
    next(events)  # a step with a token for each of the two
    events.close()
    tokens = [event.token_id for event in finish(llm)[name]]
    assert tuple(tokens) == greedy(tiny, "abc")


def test_steps_feed_an_open_stream(make_llm, tiny):
    llm = make_llm()
    events = llm.stream("abc", GREEDY)
    first = next(events)
    (name,) = llm.add_request("xyz", GREEDY)
    assert {event.request_id for found in finish(llm).values() for event in found} == {name}
    assert tuple(e.token_id for e in (first, *events)) == greedy(tiny, "abc")


def test_abort_ends_one_and_leaves_the_others(make_llm, tiny):
    llm = make_llm()
    (first,), (second,) = (llm.add_request(text, LONG) for text in ("abc", "xyz"))
    llm.step()
    llm.abort(first)
    events = finish(llm)
    assert events[first][-1].finish_reason == "abort"
    assert sum(event.token_id is not None for event in events[first]) == 0
    assert events[second][-1].finish_reason == "length"
    assert tuple(e.token_id for e in events[second]) == greedy(tiny, "xyz", 60)[1:]


def test_abort_of_a_waiting_request(make_llm):
    llm = make_llm(max_num_seqs=1)
    (first,), (second,) = (llm.add_request(text, GREEDY) for text in ("abc", "xyz"))
    llm.step()
    llm.abort(second)
    events = finish(llm)
    assert [event.finish_reason for event in events[second]] == ["abort"]
    assert events[first][-1].finish_reason == "length"


def test_unknown_ids_are_ignored_even_if_they_come_later(make_llm):
    llm = make_llm()
    llm.abort("0")
    (output,) = llm.generate("abc", GREEDY)
    assert output.request_id == "0"
    assert output.outputs[0].finish_reason == "length"
    llm.abort("0")
    llm.abort("nobody")
    assert llm.step() == []


def test_abort_twice_ends_once(make_llm):
    llm = make_llm()
    (name,) = llm.add_request("abc", LONG)
    llm.step()
    llm.abort(name)
    llm.abort(name)
    assert [event.finish_reason for event in llm.step()] == ["abort"]


def test_n_continuations(make_llm):
    params = SamplingParams(n=4, temperature=1.0, seed=3, max_tokens=6, ignore_eos=True)
    (output,) = make_llm().generate("abc", params)
    assert [one.index for one in output.outputs] == [0, 1, 2, 3]
    assert len({one.token_ids for one in output.outputs}) == 4
    assert output.outputs[0].token_ids == make_llm().generate(
        "abc", SamplingParams(temperature=1.0, seed=3, max_tokens=6, ignore_eos=True)
    )[0].outputs[0].token_ids  # fmt: skip


def test_abort_of_one_of_n(make_llm):
    llm = make_llm()
    names = llm.add_request("abc", SamplingParams(n=4, max_tokens=8, seed=0, ignore_eos=True))
    llm.step()
    llm.abort(names[2])
    events = finish(llm)
    reasons = [events[name][-1].finish_reason for name in names]
    assert reasons == ["length", "length", "abort", "length"]


def test_abort_of_all_n_by_the_id_they_share(make_llm):
    llm = make_llm()
    llm.add_request("abc", SamplingParams(n=4, max_tokens=60, seed=0, ignore_eos=True))
    other = llm.add_request("xyz", GREEDY)
    llm.step()
    llm.abort("0")
    events = llm.step()
    assert [e.finish_reason for e in events if e.request_id not in other] == ["abort"] * 4
    assert list(finish(llm)) == other


def test_abort_of_all_n_after_the_first_of_them_has_ended(make_llm):
    llm = make_llm()
    names = llm.add_request("abc", SamplingParams(n=3, max_tokens=60, seed=0, ignore_eos=True))
    llm.step()
    llm.abort(names[0])
    llm.step()
    llm.abort("0")
    ended = {event.request_id: event.finish_reason for event in llm.step()}
    assert ended == {names[1]: "abort", names[2]: "abort"}


def test_an_id_is_not_taken_for_one_that_it_begins_with(make_llm):
    llm = make_llm()
    names = [llm.add_request("abc", LONG)[0] for _ in range(12)]
    llm.abort("1")
    assert [event.request_id for event in llm.step() if event.finish_reason] == ["1"]
    assert names[10] == "10" and "10" in llm._engine.requests
    for name in names:
        llm.abort(name)
    llm.step()


def test_abort_from_another_thread(make_llm):
    llm = make_llm(num_blocks=40)
    outputs = []
    began = threading.Event()

    def run():
        for event in llm.stream("abc", SamplingParams(max_tokens=100, ignore_eos=True)):
            outputs.append(event)
            began.set()

    worker = threading.Thread(target=run)
    worker.start()
    assert began.wait(60)
    llm.abort("0")
    worker.join(60)
    assert not worker.is_alive()
    assert outputs[-1].finish_reason in ("abort", "length")  # it may have ended just before


def test_an_aborted_prompt_of_generate_keeps_its_tokens(make_llm, tiny):
    """The abort arrives while generate runs: here, from within a step."""
    llm = make_llm()
    run, steps = llm._engine.runner.run, []

    def run_and_abort(batch):
        steps.append(1)
        if len(steps) == 3:
            llm.abort("0")
        return run(batch)

    llm._engine.runner.run = run_and_abort
    first, second = llm.generate(["abc", "xyz"], GREEDY)
    assert first.outputs[0].finish_reason == "abort"
    assert first.outputs[0].token_ids == greedy(tiny, "abc", 3)
    assert first.finished
    assert second.outputs[0].token_ids == greedy(tiny, "xyz")


class Interrupted:
    """Calls through, but raises at call number `at`."""

    def __init__(self, function, at, error=KeyboardInterrupt):
        self.function, self.left, self.error = function, at, error

    def __call__(self, *args, **options):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.function(*args, **options)


PLACES = [
    ("runner", "run"),
    ("sampler", "sample"),
    ("scheduler", "schedule"),
    ("scheduler", "commit"),
    ("scorer", "note_prompts"),
    ("scorer", "note_outputs"),
    ("meter", "note_batch"),
    ("meter", "note_step"),
    ("", "_append"),
    ("", "_retire"),
    ("", "clock"),
]


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize(("owner", "name"), PLACES)
def test_an_interrupt_anywhere_leaves_the_engine_usable(make_llm, tiny, owner, name, at):
    llm = make_llm(enable_prefix_caching=True)
    target = getattr(llm._engine, owner) if owner else llm._engine
    original = getattr(target, name)
    setattr(target, name, Interrupted(original, at))
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in range(3):
                llm.generate(["abc", "xyz"], GREEDY)
    finally:
        setattr(target, name, original)
    assert not llm.has_work
    assert llm.pool.num_used == 0
    assert tokens_of(llm.generate("abc", GREEDY)) == [greedy(tiny, "abc")]


@pytest.mark.parametrize(("owner", "name"), PLACES)
def test_others_go_on_or_are_told_after_an_interrupt(make_llm, tiny, owner, name):
    llm = make_llm()
    (other,) = llm.add_request("abc", GREEDY)
    target = getattr(llm._engine, owner) if owner else llm._engine
    original = getattr(target, name)
    setattr(target, name, Interrupted(original, 2))
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["xyz", "uvw"], SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    setattr(target, name, original)
    assert tokens_of(llm.generate("xyz", GREEDY)) == [greedy(tiny, "xyz")]
    events = llm.step() + [event for found in finish(llm).values() for event in found]
    assert {event.request_id for event in events} == {other}
    tokens = tuple(event.token_id for event in events if event.token_id is not None)
    if events[-1].finish_reason == "length":
        assert tokens == greedy(tiny, "abc")
    else:
        assert events[-1].finish_reason == "abort"


def test_an_open_stream_ends_when_a_step_of_another_call_breaks(make_llm):
    llm = make_llm()
    events = llm.stream("abc", LONG)
    next(events)
    original = llm._engine._append
    llm._engine._append = Interrupted(original, 1, RuntimeError)
    with pytest.raises(RuntimeError):
        llm.generate("xyz", GREEDY)
    llm._engine._append = original
    assert [event.finish_reason for event in events][-1] == "abort"
