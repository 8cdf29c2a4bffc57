"""Chapter 05: whose tokens per second, and which load. Time is counted in steps of the engine."""

from __future__ import annotations

from random import Random
from statistics import mean
from typing import Any

from llmserve_lab.course.misconceptions import Misconception

PROMPT = "def parse(text):"
SLOTS, TOKENS, REQUESTS = 4, 8, 16
ARRIVALS, SEED = 64, 5
HALF, FULL = 0.5, 1.0  # of the capacity: SLOTS requests every TOKENS steps


def each_user_gets_one_token_a_step() -> str:
    llm = _engine()
    ids = [request for _ in range(REQUESTS) for request in llm.add_request(PROMPT, _params())]
    while llm.has_work:
        llm.step()
    per_step = [len(step.sampled) for step in llm.trace]
    came: dict[str, list[int]] = {request: [] for request in ids}
    for step in llm.trace:
        for token in step.sampled:
            came[token.request_id].append(step.step)
    assert set(per_step) == {SLOTS}
    assert all(len(steps) == len(set(steps)) == TOKENS for steps in came.values())
    waits = [steps[0] for steps in came.values()]
    return (
        f"{REQUESTS} requests on an engine for {SLOTS}: it made {SLOTS} tokens in each of its "
        f"{len(per_step)} steps. No request ever got more than 1 of them a step, and while it "
        f"waited, for up to {max(waits)} steps, it got none: over its whole stay the last one had "
        f"{TOKENS / (max(waits) + TOKENS):.2f} tokens a step, not {SLOTS}."
    )


def the_last_tenths_are_paid_in_waiting() -> str:
    tokens, waits = {}, {}
    for load in (HALF, FULL):
        tokens[load], waits[load] = _serve(load)
    assert tokens[FULL] <= SLOTS
    assert tokens[FULL] / tokens[HALF] < 1 / HALF  # no more than was offered
    assert waits[FULL] > 4 * max(1.0, waits[HALF])
    return (
        f"{ARRIVALS} requests at random steps. At half of the capacity the engine made "
        f"{tokens[HALF]:.1f} tokens a step and a request waited {waits[HALF]:.1f} steps for its "
        f"first; at full load {tokens[FULL]:.1f} tokens a step, and {waits[FULL]:.1f} steps of "
        f"waiting: {tokens[FULL] / tokens[HALF]:.1f} times the throughput for "
        f"{waits[FULL] / waits[HALF]:.0f} times the wait."
    )


def _serve(load: float) -> tuple[float, float]:
    """Tokens per step, and the mean steps from a request's arrival to its first token."""
    llm, rng = _engine(), Random(SEED)
    due = sorted(rng.randrange(int(ARRIVALS * TOKENS / SLOTS / load)) for _ in range(ARRIVALS))
    arrived: dict[str, int] = {}
    first: dict[str, int] = {}
    now = 0
    while due or llm.has_work:
        while due and due[0] <= now:
            arrived[llm.add_request(PROMPT, _params())[0]] = due.pop(0)
        for event in llm.step():
            first.setdefault(event.request_id, now + 1)
        now += 1
    return ARRIVALS * TOKENS / now, mean(first[name] - arrived[name] for name in arrived)


def _engine() -> Any:
    from llmserve_lab import LLM

    return LLM("lab-target", max_num_seqs=SLOTS, trace=True)


def _params() -> Any:
    from llmserve_lab import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)


MISCONCEPTIONS = (
    Misconception(
        key="05.total-is-mine",
        belief="A server with 1,000 tokens per second writes me 1,000 tokens per second.",
        wrong="This is wrong: that is the sum over all users, and mine is one of the parts.",
        mechanism=(
            "A decode step makes one token for each request in the batch. More requests in the "
            "batch raise the sum, not my share: I get one token a step, and the step gets longer. "
            "While I wait in the queue I get none at all."
        ),
        experiment=each_user_gets_one_token_a_step,
    ),
    Misconception(
        key="05.full-load",
        belief="A machine is best used at 100% load: anything less wastes money.",
        wrong="This is wrong: full load leaves no slack to empty a queue that chance has made.",
        mechanism=(
            "Requests come at random. Whenever more come than can be served, they queue, and only "
            "spare capacity brings the queue down again. The closer the load is to the capacity, "
            "the longer queues live. The last tenths of throughput are paid for by everyone's "
            "waiting, and answers that come too late are worth nothing."
        ),
        experiment=the_last_tenths_are_paid_in_waiting,
    ),
)
