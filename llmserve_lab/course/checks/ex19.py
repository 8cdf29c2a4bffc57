"""Exercise 19: steps of static and of continuous batching, a plan in order, and the scheduler.

The scheduler is judged by services without a model, in steps: the same verdict on every machine.
"""

from __future__ import annotations

import random
from typing import Any

from llmserve_lab.course.checks import ex19_mutants as mutants
from llmserve_lab.course.checks import ex19_schedulers as schedulers
from llmserve_lab.course.checks.grader import Arguments, Grader
from llmserve_lab.course.checks.result import Number
from llmserve_lab.course.checks.scheduler_grader import OrderGrader, SchedulerGrader
from llmserve_lab.course.checks.scheduler_trial import Trial
from llmserve_lab.course.own_scheduler import OwnScheduler
from llmserve_lab.course.plan_lines import WORKING
from llmserve_lab.engine.scheduler import Scheduled
from llmserve_lab.simulate import Ask, Workload

RANDOM_CASES = 6
GAIN = 1.5  # times the throughput of static batching
AMPLE = 400  # blocks: more than any trial needs
STEPS = Number("steps", whole=True)


def static_steps(lengths: list[int], slots: int) -> int:
    batches = [lengths[first : first + slots] for first in range(0, len(lengths), slots)]
    return sum(max(batch) for batch in batches)


def continuous_steps(lengths: list[int], slots: int) -> int:
    places = [0] * slots
    for length in lengths:
        place = places.index(min(places))
        places[place] += length
    return max(places)


def order() -> str:
    return WORKING[0]


class Continuous(OwnScheduler):
    """First come, first served; who runs goes on, and what is left of the step is for newcomers."""

    def plan(self) -> list[Scheduled]:
        batch, left = [], self.limits.max_num_batched_tokens
        for request in list(self.running):
            count = min(request.num_uncomputed_tokens, left)
            while request in self.running and not self.grow(request, count):
                self.send_back(self.running[-1])
            if request in self.running and count > 0:
                batch.append(self.part(request, count))
                left -= count
        while self.waiting and left > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting[0]
            if self.preempted or not self.grow(request, request.num_uncomputed_tokens):
                break
            self.start(request)
            count = min(request.num_uncomputed_tokens, left)
            batch.append(self.part(request, count))
            left -= count
        return batch


def _answers(rng: random.Random) -> list[Arguments]:
    fixed = [
        ([3, 5], 1),
        ([4, 1, 1, 4], 2),
        ([2, 2, 2, 2], 2),
        ([7], 4),
        ([1, 9, 1, 1, 1], 3),
        ([6, 2, 5, 1, 4, 3, 8], 3),
    ]
    drawn = [
        ([rng.randint(1, 40) for _ in range(rng.randint(5, 30))], rng.randint(2, 6))
        for _ in range(RANDOM_CASES)
    ]
    return [{"lengths": lengths, "slots": slots} for lengths, slots in fixed + drawn]


def _asks(rows: list[tuple[int, int, int]]) -> Workload:
    """rows: (arrival in steps, prompt tokens, answer tokens)."""
    return Workload(tuple(Ask(float(arrival), prompt, answer) for arrival, prompt, answer in rows))


def _few(rng: random.Random) -> Trial:
    return Trial(_asks([(0, rng.randint(2, 9), answer) for answer in (3, 1, 2)]), 2, 64, AMPLE)


def _offline(rng: random.Random) -> Trial:
    """Everybody is there, and each fourth answer is long: most of a static batch ends early."""
    rows = [
        (0, rng.randint(10, 30), rng.randint(24, 36) if place % 4 == 0 else rng.randint(1, 6))
        for place in range(24)
    ]
    return Trial(_asks(rows), 4, 128, AMPLE, GAIN)


def _long_prompts(rng: random.Random) -> Trial:
    """Prompts longer than a step, while others decode."""
    rows = [(2 * place, rng.choice((3, 5, 20, 30)), rng.randint(3, 9)) for place in range(8)]
    return Trial(_asks([(0, 21, 4), *rows]), 4, 8, AMPLE)


def _crowd(rng: random.Random) -> Trial:
    """A long prompt among short ones that never stop coming."""
    rows = [(place, rng.randint(2, 4), rng.randint(3, 6)) for place in range(24)]
    return Trial(_asks([(2, rng.randint(30, 40), 4), *rows]), 3, 16, AMPLE)


def _tight(rng: random.Random) -> Trial:
    """Room for the prompts, but not for the answers: somebody must go back."""
    rows = [(place, rng.randint(6, 12), rng.randint(10, 16)) for place in range(8)]
    return Trial(_asks(rows), 4, 32, 14)


def _trials(rng: random.Random) -> list[Arguments]:
    made = (_few, _offline, _long_prompts, _crowd, _tight)
    return [{"trial": make(rng)} for make in made]


def _ample_trials(rng: random.Random) -> list[Arguments]:
    return [{"trial": make(rng)} for make in (_few, _offline, _long_prompts)]


_SCHEDULER: Any = Continuous

GRADERS = (
    Grader(
        key="19.1",
        name="ex19_static_steps",
        reference=static_steps,
        shape=STEPS,
        cases=_answers,
        hints=(
            "When may the next batch begin?",
            "A batch lasts as many steps as its longest answer has tokens.",
            "Cut the list into groups of slots, and add up the max of each.",
        ),
        mutants=mutants.STATIC,
    ),
    Grader(
        key="19.2",
        name="ex19_continuous_steps",
        reference=continuous_steps,
        shape=STEPS,
        cases=_answers,
        hints=(
            "Which place becomes free first? The next request takes that one.",
            "places[i] is the step after which place i is free. Find the smallest, and add the "
            "length of the answer to it.",
            "place = places.index(min(places)); places[place] += length",
        ),
        mutants=mutants.CONTINUOUS,
    ),
    OrderGrader(
        key="19.3",
        name="ex19_order",
        reference=order,
        shape=STEPS,
        cases=_ample_trials,
        hints=(
            "Find the two loops: one lets requests in, the other goes through those that run.",
            "Let in whoever has a place; then go through running, the oldest first, and give each "
            "its tokens while the budget lasts.",
            "It begins with c, h, e, g and ends with b.",
        ),
        mutants=mutants.ORDER,
    ),
    SchedulerGrader(
        key="19.4",
        name="ex19_scheduler",
        reference=_SCHEDULER,
        shape=STEPS,
        cases=_trials,
        hints=(
            "The plan of 19.3 is the start. What must happen where grow returns False: to one that "
            "runs, and to one that waits?",
            "For one that runs: send back the last of running until grow succeeds or the request "
            "itself is gone. For one that waits: stop letting in, and let nobody in in a step that "
            "sent somebody back. Ask for blocks for its whole prompt.",
            "for request in list(self.running): while request in self.running and not "
            "self.grow(request, count): self.send_back(self.running[-1]). Then add its part if it "
            "still runs and count > 0. Then let in: grow(self.waiting[0], all its tokens), start, "
            "part.",
        ),
        mutants=schedulers.SCHEDULER,
    ),
)
