"""One workload's part of the result: the ranking, and who is left out of it and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.comparison.contest import Contest, Workers
from benchmarks.comparison.contestants import CONTESTANTS, Contestant
from benchmarks.comparison.models import folder_of
from benchmarks.comparison.near_tie import NEAR, NearTies, shortfalls_of
from benchmarks.comparison.ranking import Judge, Ranked, Run, exact, rank, sift
from benchmarks.comparison.workloads import Work
from benchmarks.peers.environment import python_of
from benchmarks.peers.worker import PeerError

NOT_MADE = "its environment is not there: python -m benchmarks.peers vllm"
NO_FIRST = "the first contestant gave no result to compare with"


def outcome(work: Work, made: Workers, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the workload's contestants and rank those that may be compared."""
    say(f"{work.name}: {len(work.prompts)} requests, {work.num_output_tokens} output tokens")
    able, refused = _able(CONTESTANTS[work.name], made)
    contest = Contest(work, able, made, say)
    runs = contest.run()
    refused |= _failures(able, contest.failed)
    judge = judge_of(work)
    ranking, different = ranking_of(runs, CONTESTANTS[work.name][0].name, judge)
    peers = {each.name: each.peer for each in able}
    return {
        **facts_of(work),
        "rule": rule_of(judge),
        "runs": [row_of(ranked, peers[ranked.run.contestant]) for ranked in ranking],
        "refused": refused | different,
    }


def ranking_of(
    runs: list[Run], first: str, judge: Judge
) -> tuple[list[Ranked], dict[str, list[str]]]:
    """The runs that may be compared with that of `first`, and why the others may not."""
    if not runs or runs[0].contestant != first:
        return [], {run.contestant: [NO_FIRST] for run in runs}
    kept, different = sift(runs, judge)
    return rank(kept, judge) if kept else [], different


def _able(
    contestants: tuple[Contestant, ...], made: Workers
) -> tuple[tuple[Contestant, ...], dict[str, list[str]]]:
    """Those whose process is up, and why the others' is not."""
    failed: dict[str, str] = {}
    for peer in dict.fromkeys(each.peer for each in contestants):
        if python_of(peer) is None:
            failed[peer] = NOT_MADE
            continue
        try:
            made.of(peer)
        except PeerError as error:
            failed[peer] = str(error)
    able = tuple(each for each in contestants if each.peer not in failed)
    return able, _failures(contestants, failed)


def _failures(contestants: tuple[Contestant, ...], failed: dict[str, str]) -> dict[str, list[str]]:
    """By contestant, from what is known by peer."""
    return {each.name: [failed[each.peer]] for each in contestants if each.peer in failed}


def judge_of(work: Work) -> Judge:
    """Outputs in float32 must be equal, others equal but for near ties."""
    if work.dtype == "float32":
        return exact
    return NearTies(work.prompts, shortfalls_of(folder_of(work.model)))


def rule_of(judge: Judge) -> dict[str, Any]:
    """How outputs were compared; of near ties, the largest shortfall that was let pass."""
    if not isinstance(judge, NearTies):
        return {"name": "exact"}
    return {"name": "near tie", "allowed": NEAR, "largest": judge.largest}


def facts_of(work: Work) -> dict[str, Any]:
    warm_up = work.warm_up
    return {
        "name": work.name,
        "model": work.model,
        "dtype": work.dtype,
        "requests": len(work.prompts),
        "prompt_tokens": sum(map(len, work.prompts)),
        "output_tokens": work.num_output_tokens,
        "warm_up": {
            "requests": len(warm_up.prompts),
            "output_tokens": warm_up.num_output_tokens,
        },
    }


def row_of(ranked: Ranked, peer: str) -> dict[str, Any]:
    run = ranked.run
    return {
        "contestant": run.contestant,
        "peer": peer,
        "engine": run.engine,
        "repeats": len(run.seconds),
        "seconds": list(run.seconds),
        "cpu_seconds": list(run.cpu_seconds),
        "min_s": run.best,
        "median_s": run.median,
        "tokens_per_second": run.num_tokens / run.median,
        "ratio": ranked.ratio,
        "ratio_best": ranked.ratio_best,
    }
