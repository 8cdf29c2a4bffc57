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
from benchmarks.peers.worker import Worker

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


def compete(work: Work, contestants: tuple[Contestant, ...], made: Workers, say: Say) -> list[Run]:
    """Warm every contestant up, then run them in turn: A B C A B C. One result each."""
    warm = {each.name: _warmed(made.of(each.peer), work, each) for each in contestants}
    answers: dict[str, list[dict[str, Any]]] = {each.name: [] for each in contestants}
    for repeat in range(work.repeats):
        for each in contestants:
            if repeat < (each.repeats or work.repeats):
                answer = made.of(each.peer).run(job_of(work, each))
                answers[each.name].append(answer)
                say(f"  {answer['seconds']:8.2f} s  {each.name}")
    return [_run(work, each, made, warm[each.name], answers[each.name]) for each in contestants]


def job_of(work: Work, contestant: Contestant) -> dict[str, Any]:
    return {
        "prompts": work.prompts,
        "max_tokens": work.max_tokens,
        "settings": contestant.settings,
    }


def _warmed(worker: Worker, work: Work, contestant: Contestant) -> tuple[int, int]:
    """Requests and output tokens that the contestant really ran."""
    tokens = worker.run(job_of(work.warm_up, contestant))["token_ids"]
    return len(tokens), sum(map(len, tokens))


def _run(
    work: Work, each: Contestant, made: Workers, warm: tuple[int, int], answers: list[dict]
) -> Run:
    facts = made.of(each.peer).facts
    outputs: dict[Tokens, None] = {}
    for answer in answers:
        outputs[tuple(map(tuple, answer["token_ids"]))] = None
    return Run(
        each.name, facts["engine"], facts["weights"], answers[0]["prompts"],
        facts["dtype"].removeprefix("torch."), facts["threads"], warm, tuple(outputs),
        tuple(answer["seconds"] for answer in answers),
        tuple(answer["cpu_seconds"] for answer in answers),
    )  # fmt: skip
