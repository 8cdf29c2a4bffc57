"""All contestants of a workload, one after the other, several times over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.comparison.contestants import Contestant
from benchmarks.comparison.models import folder_of
from benchmarks.comparison.ranking import Run, Tokens
from benchmarks.comparison.workloads import Work
from benchmarks.peers.environment import python_of
from benchmarks.peers.worker import PeerError, Worker

Say = Callable[[str], None]


class Workers:
    """The processes of one model: one for each peer, started when it is first needed."""

    def __init__(self, model: str, dtype: str, threads: int, say: Say) -> None:
        self._setup = (str(folder_of(model)), dtype, threads)
        self._say, self._workers = say, {}  # type: dict[str, Worker]

    def of(self, peer: str) -> Worker:
        if peer not in self._workers:
            self._say(f"  starting {peer}")
            python = python_of(peer)
            assert python is not None
            self._workers[peer] = Worker(peer, python, *self._setup)
        return self._workers[peer]

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


@contextmanager
def workers(model: str, dtype: str, threads: int, say: Say) -> Iterator[Workers]:
    made = Workers(model, dtype, threads, say)
    try:
        yield made
    finally:
        made.close()


class Contest:
    """Warms every contestant up, then runs them in turn: A B C A B C. failed: what a peer said that
    ended on the way; its contestants have no result."""

    def __init__(
        self, work: Work, contestants: tuple[Contestant, ...], made: Workers, say: Say
    ) -> None:
        self.work, self.contestants, self.made, self.say = work, contestants, made, say
        self.failed: dict[str, str] = {}

    def run(self) -> list[Run]:
        """One result for each contestant, in their order."""
        warm = {each.name: self._try(self.work.warm_up, each) for each in self.contestants}
        answers: dict[str, list[dict[str, Any]]] = {each.name: [] for each in self.contestants}
        for repeat in range(self.work.repeats):
            for each in self.contestants:
                if repeat < (each.repeats or self.work.repeats):
                    answers[each.name].append(self._timed(each))
        return [
            run_of(self.made.of(each.peer).facts, each, warm[each.name], answers[each.name])
            for each in self.contestants
            if each.peer not in self.failed
        ]

    def _timed(self, each: Contestant) -> dict[str, Any]:
        answer = self._try(self.work, each)
        if answer:
            self.say(f"  {answer['seconds']:8.2f} s  {each.name}")
        return answer

    def _try(self, work: Work, each: Contestant) -> dict[str, Any]:
        """The answer, empty from a peer that has failed."""
        if each.peer in self.failed:
            return {}
        try:
            return self.made.of(each.peer).run(job_of(work, each))
        except PeerError as error:
            self.failed[each.peer] = str(error)
            return {}


def job_of(work: Work, contestant: Contestant) -> dict[str, Any]:
    return {
        "prompts": work.prompts,
        "max_tokens": work.max_tokens,
        "settings": contestant.settings,
    }


def run_of(
    facts: dict[str, Any], each: Contestant, warm: dict[str, Any], answers: list[dict[str, Any]]
) -> Run:
    """What the peer said of itself and of its warm-up, and what it answered."""
    outputs: dict[Tokens, None] = {}
    for answer in answers:
        outputs[tuple(map(tuple, answer["token_ids"]))] = None
    return Run(
        each.name, facts["engine"], facts["weights"], answers[0]["prompts"],
        facts["dtype"].removeprefix("torch."), facts["threads"],
        (len(warm["token_ids"]), sum(map(len, warm["token_ids"]))), tuple(outputs),
        tuple(answer["seconds"] for answer in answers),
        tuple(answer["cpu_seconds"] for answer in answers),
    )  # fmt: skip
