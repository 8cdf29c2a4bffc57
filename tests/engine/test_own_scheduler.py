"""A scheduler that a learner writes: a broken rule is named, and the engine goes on afterwards."""

import pytest

from llmserve_lab import SamplingParams, Scheduled, Scheduler, SchedulerError
from llmserve_lab.engine.request import Request

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


class Tampering(Scheduler):
    """Changes the batch of step `at` by `change`, then behaves."""

    def __init__(self, change, at=2):
        super().__init__()
        self.change, self.left = change, at

    def schedule(self):
        batch = super().schedule()
        self.left -= 1
        return self.change(batch) if self.left == 0 else batch


def stranger(batch):
    request = Request("stranger", [1, 2], GREEDY)
    return [*batch, Scheduled(request, 0, 1)]


def impostor(batch):
    """Another object with the id of a known request."""
    request = batch[0].request
    return [Scheduled(Request(request.request_id, request.prompt_token_ids, GREEDY), 0, 1)]


class Withholding(Scheduler):
    """Lists a request as scheduled while its blocks are put away."""

    put_away = None

    def schedule(self):
        batch = super().schedule()
        if batch[0].start > 0 and self.put_away is None:
            request = batch[0].request
            self.put_away, request.block_table = request.block_table, []
        return batch


def resized(change):
    def apply(batch):
        first, *rest = batch
        return [Scheduled(first.request, first.start, first.num_tokens + change), *rest]

    return apply


BROKEN = {
    "unknown request": (stranger, "'stranger' is not one that the engine knows"),
    "impostor": (impostor, "is not one that the engine knows"),
    "twice": (lambda batch: [*batch, batch[0]], "'0' is in the step twice"),
    "too many tokens": (resized(100), "tokens in a step of at most 20"),
    "more than there is": (resized(1), "'0' has 1 tokens to compute; 2 were scheduled"),
    "no tokens": (resized(-1), "'0' has 1 tokens to compute; 0 were scheduled"),
    "nothing": (lambda batch: [], "chose nothing while requests wait"),
    "no list": (lambda batch: None, "must return a list of Scheduled"),
    "requests": (lambda batch: [item.request for item in batch], "list of Scheduled"),
    "too many sequences": (lambda batch: batch * 2, "4 sequences in a step of at most 3"),
    "no request": (
        lambda batch: [*batch, Scheduled(None, 0, 1)],
        "Scheduled.request must be a Request, not None",
    ),
    "start of another type": (
        lambda batch: [Scheduled(batch[0].request, float(batch[0].start), 1)],
        "'0': start and num_tokens must be of type int, not 3.0 and 1",
    ),
    "tokens of another type": (
        lambda batch: [Scheduled(batch[0].request, batch[0].start, True)],
        "'0': start and num_tokens must be of type int",
    ),
    "plain tuples": (
        lambda batch: [tuple(item) for item in batch],
        "must return a list of Scheduled",
    ),
    "a generator": (lambda batch: iter(batch), "must return a list of Scheduled"),
    "before the start": (
        lambda batch: [Scheduled(batch[0].request, -1, 1)],
        "must go on at token 3, not at -1",
    ),
    "wrong start": (
        lambda batch: [Scheduled(batch[0].request, batch[0].start - 1, 1)],
        "must go on at token 3, not at 2",
    ),
}


@pytest.mark.parametrize("key", BROKEN)
def test_a_broken_rule_is_named_and_nothing_is_left(make_llm, key):
    change, message = BROKEN[key]
    llm = make_llm(scheduler=Tampering(change), max_num_batched_tokens=20, max_num_seqs=3)
    with pytest.raises(SchedulerError, match=message) as error:
        llm.generate(["abc", "xyz"], GREEDY)
    assert str(error.value).count("\n") == 0
    assert llm.pool.num_used == 0
    cold = make_llm().generate("abc", GREEDY)
    assert llm.generate("abc", GREEDY)[0].outputs[0].token_ids == cold[0].outputs[0].token_ids


def test_missing_blocks_are_named(make_llm):
    llm = make_llm(scheduler=Withholding())
    llm.add_request("abc", GREEDY)
    llm.step()
    with pytest.raises(SchedulerError, match="'0' lacks blocks for its first 4 tokens"):
        llm.step()
    assert llm.pool.num_used == 0  # the blocks that nobody holds are not lost
    events = []
    while llm.has_work:
        events += llm.step()
    (cold,) = make_llm().generate("abc", GREEDY)
    assert tuple(event.token_id for event in events) == cold.outputs[0].token_ids[1:]


def test_requests_survive_a_scheduler_that_breaks_a_rule_once(make_llm):
    """Nothing was computed, so the next step does it."""
    cold = make_llm().generate("abc", GREEDY)[0].outputs[0].token_ids
    llm = make_llm(scheduler=Tampering(lambda batch: [*batch, batch[0]]))
    llm.add_request("abc", GREEDY)
    events = llm.step()
    with pytest.raises(SchedulerError):
        llm.step()
    while llm.has_work:
        events += llm.step()
    assert tuple(event.token_id for event in events) == cold


def test_an_abort_is_not_lost_in_a_step_that_raises(make_llm):
    llm = make_llm(scheduler=Tampering(lambda batch: [], at=2))
    (first,), (second,) = (llm.add_request(text, GREEDY) for text in ("abc", "xyz"))
    llm.step()
    llm.abort(first)
    with pytest.raises(SchedulerError):
        llm.step()
    events = llm.step()
    assert (events[0].request_id, events[0].finish_reason) == (first, "abort")
    llm.abort(second)
    llm.step()


class Losing(Scheduler):
    """Takes requests out of the queue and forgets to run them."""

    def schedule(self):
        self.waiting.clear()
        return []


def test_requests_that_the_scheduler_lost_can_still_be_ended(make_llm):
    llm = make_llm(scheduler=Losing())
    with pytest.raises(SchedulerError, match="chose nothing"):
        llm.generate(["abc", "xyz"], GREEDY)
    assert not llm.has_work


class ShortestFirst(Scheduler):
    """A policy in three lines, as a learner would write it."""

    def schedule(self):
        ordered = sorted(self.waiting, key=lambda request: request.num_prompt_tokens)
        self.waiting.clear()
        self.waiting.extend(ordered)
        return super().schedule()


def test_a_policy_changes_the_order_and_no_text(make_llm):
    prompts = ["a longer prompt", "short", "x"]
    plain = make_llm(max_num_seqs=1).generate(prompts, GREEDY)
    ours = make_llm(max_num_seqs=1, scheduler=ShortestFirst()).generate(prompts, GREEDY)
    assert [o.outputs[0].token_ids for o in ours] == [o.outputs[0].token_ids for o in plain]
    ends = [output.metrics.token_times[-1] for output in ours]
    assert ends == sorted(ends, reverse=True)


class GivesUpTheFirst(Scheduler):
    """Once it sends everything back, so that a step runs nothing at all."""

    given_up = False

    def schedule(self):
        if self.running and not self.given_up:
            self.given_up = True
            self.preempted = []
            while self.running:
                self._preempt(self.running[-1])
            return []
        return super().schedule()


def test_a_step_may_only_preempt(make_llm):
    cold = make_llm().generate(["abc", "xyz"], GREEDY)
    llm = make_llm(scheduler=GivesUpTheFirst(), trace=True)
    outputs = llm.generate(["abc", "xyz"], GREEDY)
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in cold]
    assert [output.metrics.num_preemptions for output in outputs] == [1, 1]
    assert set(llm.trace[1].preempted) == {"0", "1"}


class ForgetsItsParent(Scheduler):
    def __init__(self):
        pass


@pytest.mark.parametrize("scheduler", [Scheduler, ForgetsItsParent(), "fifo"])
def test_what_is_no_scheduler_object_is_refused(tiny, scheduler):
    from llmserve_lab import LLM

    with pytest.raises(TypeError, match=r"scheduler must be a Scheduler object"):
        LLM(tiny, num_blocks=8, scheduler=scheduler)


class Meddling(Scheduler):
    """Does something to the blocks before the third step, once."""

    def __init__(self, meddle):
        super().__init__()
        self.meddle, self.steps = meddle, 0

    def schedule(self):
        self.steps += 1
        if self.steps == 3:
            self.meddle(self, *self.running)
        return super().schedule()


def give_away(scheduler, first, second):
    scheduler.pool.release(first.block_table)


def take_over(scheduler, first, second):
    second.block_table[0] = first.block_table[0]


def lose(scheduler, first, second):
    second.block_table, second.num_computed_tokens = [], 0


def lose_and_hide(scheduler, first, second):
    """Nothing is missing: only a block is gone for ever."""
    scheduler.pool.allocate(1)


def invent(scheduler, first, second):
    first.block_table.append(1000)


def hold_twice(scheduler, first, second):
    first.block_table.append(first.block_table[0])


def release_twice(scheduler, first, second):
    scheduler.pool.release(first.block_table)
    scheduler.pool.release(first.block_table)


MEDDLERS = {
    give_away: (SchedulerError, r"'0' holds block \d+, which is free"),
    take_over: (SchedulerError, r"held by '0' and '1', but was handed out 1x"),
    lose: (SchedulerError, r"No request holds block \d+ \(1 in all\)"),
    lose_and_hide: (SchedulerError, r"No request holds block \d+ \(1 in all\)"),
    invent: (SchedulerError, r"'0' holds block 1000, but the pool has blocks 0 to 63"),
    hold_twice: (SchedulerError, r"held by '0' and '0', but was handed out 1x"),
    release_twice: (ValueError, "released twice"),
}


@pytest.mark.parametrize("meddle", MEDDLERS)
@pytest.mark.parametrize("prefix_caching", [False, True])
def test_whoever_confuses_blocks_is_told_and_nothing_is_lost(make_llm, meddle, prefix_caching):
    """The requests start over, so even they come out right; and so does the next one."""
    cold = make_llm().generate(["abc", "xyz"], GREEDY)
    llm = make_llm(scheduler=Meddling(meddle), enable_prefix_caching=prefix_caching)
    names = [name for text in ("abc", "xyz") for name in llm.add_request(text, GREEDY)]
    events = llm.step() + llm.step()
    kind, message = MEDDLERS[meddle]
    with pytest.raises(kind, match=message) as error:
        llm.step()
    assert str(error.value).count("\n") == 0
    llm.pool.check_integrity()
    assert llm.pool.num_used == 0
    while llm.has_work:
        events += llm.step()
    for name, output in zip(names, cold, strict=True):
        tokens = tuple(event.token_id for event in events if event.request_id == name)
        assert tokens == output.outputs[0].token_ids
    (again,) = llm.generate("abc", GREEDY)
    assert again.outputs[0].token_ids == cold[0].outputs[0].token_ids


def test_whoever_confuses_blocks_within_generate_leaves_a_usable_engine(make_llm):
    llm = make_llm(scheduler=Meddling(take_over))
    with pytest.raises(SchedulerError, match="but was handed out 1x"):
        llm.generate(["abc", "xyz"], GREEDY)
    assert not llm.has_work
    assert llm.pool.num_used == 0
    (again,) = llm.generate("abc", GREEDY)
    assert again.outputs[0].token_ids == make_llm().generate("abc", GREEDY)[0].outputs[0].token_ids


class Leaky(Scheduler):
    """Forgets to release what a finished request held."""

    def remove(self, request):
        request.block_table = []
        super().remove(request)


def test_blocks_that_a_finished_request_left_behind(make_llm):
    llm = make_llm(scheduler=Leaky())
    llm.generate("abc", GREEDY)
    with pytest.raises(SchedulerError, match="No request holds block"):
        llm.generate("abc", GREEDY)
    assert llm.pool.num_used == 0


class Crashing(Scheduler):
    """Fails between taking a request's blocks and noting it."""

    def __init__(self):
        super().__init__()
        self.crashed = False

    def schedule(self):
        if self.running and not self.crashed:
            self.crashed = True
            self.running[0].block_table = []
            raise ZeroDivisionError
        return super().schedule()


def test_an_error_within_schedule_is_the_learners_own_and_loses_nothing(make_llm):
    llm = make_llm(scheduler=Crashing())
    with pytest.raises(ZeroDivisionError):
        llm.generate(["abc", "xyz"], GREEDY)
    assert llm.pool.num_used == 0
    assert len(llm.generate("abc", GREEDY)[0].outputs[0].token_ids) == 4


class SendsBack(Scheduler):
    """Preempts everything in every step: nobody can get anywhere."""

    def schedule(self):
        batch = super().schedule()
        self.preempted = []
        while self.running:
            self._preempt(self.running[-1])
        return [] if self.preempted else batch


class OldNews(Scheduler):
    """Never clears its list of preempted requests, which would excuse an empty step."""

    def schedule(self):
        self.preempted = list(self.waiting)
        return []


class Forgets(Scheduler):
    """Computes the first token of a prompt again and again."""

    def schedule(self):
        for request in list(self.running):
            self._preempt(request)
        request = self.waiting.popleft()
        self._grow(request, 1)
        self._enter(request)
        self.preempted = []
        return [Scheduled(request, 0, 1)]


class Later(Scheduler):
    """Always wants to wait a little longer."""

    def schedule(self):
        self.wake_at = self.clock() + 1e-4
        return []


@pytest.mark.parametrize("kind", [SendsBack, OldNews, Forgets, Later])
def test_a_loop_without_progress_is_named(make_llm, kind):
    llm = make_llm(scheduler=kind())
    with pytest.raises(SchedulerError, match=r"has brought no request any further \(0, 1\)"):
        llm.generate(["abc", "xyz"], GREEDY)
    assert not llm.has_work
    assert llm.pool.num_used == 0


@pytest.mark.parametrize("wake_at", ["soon", float("nan"), float("inf")])
def test_a_time_to_wake_that_is_none(make_llm, wake_at):
    class Strange(Scheduler):
        def schedule(self):
            self.wake_at = wake_at
            return []

    llm = make_llm(scheduler=Strange())
    with pytest.raises(SchedulerError, match="wake_at must be a time in seconds"):
        llm.generate("abc", GREEDY)


class OneTokenAtATime(Scheduler):
    """Slow, with everything lost once and computed again: legal."""

    steps = 0

    def schedule(self):
        self.preempted = []
        self.steps += 1
        if self.steps == 40:
            while self.running:
                self._preempt(self.running[-1])
            return []
        while self.waiting and len(self.running) < self.limits.max_num_seqs:
            self._enter(self.waiting.popleft())
        turn = self.running[self.steps % len(self.running)]
        self._grow(turn, turn.num_computed_tokens + 1)
        return [Scheduled(turn, turn.num_computed_tokens, 1)]


def test_computing_lost_tokens_again_is_no_loop(make_llm):
    prompts = ["a prompt of some length", "another one that is longer", "c"]
    cold = make_llm().generate(prompts, GREEDY)
    llm = make_llm(scheduler=OneTokenAtATime())
    outputs = llm.generate(prompts, GREEDY)
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in cold]
    assert [output.metrics.num_preemptions for output in outputs] == [1, 1, 0]
