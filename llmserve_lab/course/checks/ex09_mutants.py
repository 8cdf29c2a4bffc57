"""Wrong answers to exercise 09, each by the mistake it makes. The graders must reject every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmserve_lab.course.strategies import CONTINUOUS, QUANTIZED, STRATEGIES

Mutants = dict[str, Callable[..., Any]]
Counts = dict[str, float]
LEAST = 0.05

SHARE: Mutants = {
    "the wrong way round": lambda none, run, measure: none[measure] / run[measure],
    "what is saved": lambda none, run, measure: 1 - run[measure] / none[measure],
    "per cent": lambda none, run, measure: 100 * run[measure] / none[measure],
    "the difference": lambda none, run, measure: none[measure] - run[measure],
    "another measure": lambda none, run, measure: run["other"] / none["other"],
}

TOKENS: Mutants = {
    "each draft counts for itself": lambda alpha, count: 1 + alpha * count,
    "no token of the model's own": lambda alpha, count: (
        sum(alpha**i for i in range(1, count + 1)) or 0.0
    ),
    "one power too few": lambda alpha, count: sum(alpha**i for i in range(count)),
    "one power too many": lambda alpha, count: sum(alpha**i for i in range(count + 2)),
    "all or nothing": lambda alpha, count: 1 + count * alpha**count,
    "divides by zero where all are right": lambda alpha, count: (
        (1 - alpha ** (count + 1)) / (1 - alpha)
    ),
    "the limit": lambda alpha, count: 1 / (1 - alpha) if alpha < 1 else float(count + 1),
}


def _keeps_on(drafts: list[int], choices: list[int]) -> list[int]:
    """Right drafts after a wrong one are kept too."""
    right = [draft for draft, choice in zip(drafts, choices, strict=False) if draft == choice]
    return [*right, choices[len(right)]]


def _number_right(drafts: list[int], choices: list[int]) -> int:
    count = 0
    while count < len(drafts) and drafts[count] == choices[count]:
        count += 1
    return count


JUDGE: Mutants = {
    "accepts every draft": lambda drafts, choices: [*drafts, choices[-1]],
    "keeps the wrong draft": lambda drafts, choices: (
        drafts[: _number_right(drafts, choices) + 1]
        if _number_right(drafts, choices) < len(drafts)
        else [*drafts, choices[-1]]
    ),
    "no token of the model's own": lambda drafts, choices: drafts[: _number_right(drafts, choices)],
    "no bonus": lambda drafts, choices: choices[: max(1, _number_right(drafts, choices))],
    "the last choice in any case": lambda drafts, choices: [
        *drafts[: _number_right(drafts, choices)],
        choices[-1],
    ],
    "goes on after a wrong one": _keeps_on,
    "all choices": lambda drafts, choices: list(choices),
    "a count": lambda drafts, choices: _number_right(drafts, choices) + 1,
}


def _found(
    token_ids: list[int], count: int, size: int = 2, first: bool = False, last: int = 3
) -> list[int]:
    starts = range(len(token_ids) - last, -1, -1)
    for start in sorted(starts) if first else starts:
        if token_ids[start : start + size] == token_ids[-size:]:
            return token_ids[start + size : start + size + count]
    return []


PROPOSE: Mutants = {
    "the first place": lambda token_ids, count: _found(token_ids, count, first=True),
    "the last token only": lambda token_ids, count: _found(token_ids, count, size=1, last=2),
    "three tokens": lambda token_ids, count: _found(token_ids, count, size=3, last=4),
    "finds itself": lambda token_ids, count: _found(token_ids, count, last=2),
    "the tokens that were found": lambda token_ids, count: (
        token_ids[-2:] if _found(token_ids, count) else []
    ),
    "more than asked for": lambda token_ids, count: _found(token_ids, count + 1),
    "None where there is nothing": lambda token_ids, count: _found(token_ids, count) or None,
    "fills up with zeros": lambda token_ids, count: (_found(token_ids, count) + [0] * count)[
        :count
    ],
}


def _gains(bench: Any, measure: str) -> dict[str, float]:
    none = bench.run()[measure]
    return {name: 1 - bench.run(name)[measure] / none for name in STRATEGIES}


def _best(gains: dict[str, float], least: float = LEAST) -> str | None:
    name = max(gains, key=gains.__getitem__)
    return name if gains[name] > least else None


def _signed(bench: Any, measure: str) -> dict[str, float]:
    sign = -1 if measure == "throughput" else 1
    return {name: sign * gain for name, gain in _gains(bench, measure).items()}


def _without(gains: dict[str, float], name: str) -> dict[str, float]:
    return {key: gain for key, gain in gains.items() if key != name}


def _allowed(bench: Any, measure: str, exact: bool) -> dict[str, float]:
    gains = _signed(bench, measure)
    return _without(gains, QUANTIZED) if exact else gains


CHOOSE: Mutants = {
    "less is always better": lambda bench, measure, exact: _best(
        _without(_gains(bench, measure), QUANTIZED) if exact else _gains(bench, measure)
    ),
    "the largest change of any sign": lambda bench, measure, exact: max(
        _allowed(bench, measure, exact), key=lambda n: abs(_allowed(bench, measure, exact)[n])
    ),
    "ignores exactness": lambda bench, measure, exact: _best(_signed(bench, measure)),
    "never quantizes": lambda bench, measure, exact: _best(
        _without(_signed(bench, measure), QUANTIZED)
    ),
    "always names one": lambda bench, measure, exact: _best(
        _allowed(bench, measure, exact), -float("inf")
    ),
    "always by throughput": lambda bench, measure, exact: _best(
        _allowed(bench, "throughput", exact)
    ),
    "always by the first token": lambda bench, measure, exact: _best(
        _allowed(bench, "first", exact)
    ),
    "always continuous batching": lambda bench, measure, exact: CONTINUOUS,
    "a tuple with the gain": lambda bench, measure, exact: (
        _best(_allowed(bench, measure, exact)),
        1.0,
    ),
}
