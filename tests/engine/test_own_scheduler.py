"""A scheduler that a learner writes: a broken rule is named, and the engine goes on afterwards."""

import pytest

from llmserve_lab import SamplingParams, Scheduler
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.engine.validate import SchedulerError

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
        if batch[0].start > 0:
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
    llm.pool.release(llm.scheduler.put_away)
    llm.abort("0")
    llm.step()


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
