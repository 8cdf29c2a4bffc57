"""Times are compared only between runs that did the same work in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Tokens = tuple[tuple[int, ...], ...]  # output token ids, for each request
Judge = Callable[[Tokens, Tokens], list[str]]  # what is wrong with the second, after the first
MUST_AGREE = ("weights", "prompts", "dtype", "threads", "warm_up")


class NotComparableError(ValueError):
    """The runs did different work: their times say nothing about each other."""


@dataclass(frozen=True)
class Run:
    """One contestant's timed repeats. weights, prompts: fingerprints. warm_up: requests and output
    tokens run beforehand. outputs: the distinct ones of the repeats, one if all agreed."""

    contestant: str
    engine: str
    weights: str
    prompts: str
    dtype: str
    threads: int
    warm_up: tuple[int, int]
    outputs: tuple[Tokens, ...]
    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Useful output tokens of a repeat."""
        return sum(map(len, self.outputs[0]))

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True)
class Ranked:
    """ratio: how many times as long as the first run took, by the median; ratio_best: by the
    fastest repeat of each."""

    run: Run
    ratio: float
    ratio_best: float


def exact(ours: Tokens, theirs: Tokens) -> list[str]:
    """The rule for float32: the same token ids."""
    wrong = [i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    if not wrong:
        return []
    place = first_difference(ours[wrong[0]], theirs[wrong[0]])
    where = f"first in request {wrong[0]} at output token {place}"
    return [f"different outputs in {len(wrong)} of {len(ours)} requests, {where}"]


def first_difference(left: Sequence[int], right: Sequence[int]) -> int:
    """The first place at which two outputs of one length differ; their length if none."""
    pairs = enumerate(zip(left, right, strict=True))
    return next((place for place, (a, b) in pairs if a != b), len(left))


def differences(first: Run, other: Run, judge: Judge = exact) -> list[str]:
    """Why `other` may not be compared with `first`, one sentence each; empty if it may."""
    found = [
        f"different {name.replace('_', '-')}: {_shown(other, name)} against {_shown(first, name)}"
        for name in MUST_AGREE
        if getattr(first, name) != getattr(other, name)
    ]
    counts = [_miscounted(first.outputs[0], outputs) for outputs in other.outputs]
    if any(counts):
        return found + [count for count in counts if count][:1]
    judged = [judge(first.outputs[0], outputs) for outputs in other.outputs]
    return found + next((reasons for reasons in judged if reasons), [])


def rank(runs: Sequence[Run], judge: Judge = exact) -> list[Ranked]:
    """Fastest first, with ratios to the first run given.

    Raises:
        NotComparableError: a run did not do what the first did; the message says which and how.
    """
    first = runs[0]
    reasons = [
        f"{run.contestant}: {reason}" for run in runs for reason in differences(first, run, judge)
    ]
    if reasons:
        raise NotComparableError("These runs cannot be ranked. " + "; ".join(reasons) + ".")
    ranked = [Ranked(run, run.median / first.median, run.best / first.best) for run in runs]
    return sorted(ranked, key=lambda each: each.ratio)


def sift(runs: Sequence[Run], judge: Judge = exact) -> tuple[list[Run], dict[str, list[str]]]:
    """The runs that may be ranked with the first, and why each of the others may not. Where the
    first one's repeats differ among themselves, none may."""
    refused = {run.contestant: differences(runs[0], run, judge) for run in runs}
    if refused[runs[0].contestant]:
        reason = f"{runs[0].contestant} gave different outputs in its own repeats"
        return [], {run.contestant: [reason] for run in runs}
    kept = [run for run in runs if not refused[run.contestant]]
    return kept, {name: reasons for name, reasons in refused.items() if reasons}


def _miscounted(first: Tokens, other: Tokens) -> str:
    ours, theirs = list(map(len, first)), list(map(len, other))
    if ours == theirs:
        return ""
    there = f"{sum(theirs)} in {len(theirs)} requests"
    return f"different token counts: {there} against {sum(ours)} in {len(ours)}"


def _shown(run: Run, name: str) -> Any:
    value = getattr(run, name)
    return f"{value[0]} requests, {value[1]} tokens" if name == "warm_up" else value
