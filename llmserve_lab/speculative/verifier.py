"""Judges drafts by the target's logits: all drafts of a step at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from llmserve_lab.engine.position import Position
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampler import Sampler
from llmserve_lab.speculative.rejection import judged, normalised

if TYPE_CHECKING:
    import torch

Sources = dict[Request, "list[torch.Tensor]"]
"""Where a draft model drew drafts at random: for each the probabilities, (vocabulary,)."""


class Verdict(NamedTuple):
    """The token that comes at a position, and whether it is the draft that stands there."""

    token: int
    is_draft: bool


def verify(
    sampler: Sampler, logits: torch.Tensor, requests: Sequence[Request], sources: Sources
) -> list[list[int]]:
    """For each request its right drafts and one token more.

    Greedy requests, and those with a seed, get the tokens that they would get without drafts: a
    draft is right if it is that token. For the others it is accepted or replaced at random, which
    accepts more drafts and follows the target's distribution as exactly (see `rejection`).

    logits: (rows, vocabulary), of each request the rows after its latest token and after each of
    its drafts.
    """
    positions = [
        Position(request, number)
        for request in requests
        for number in range(len(request.draft_token_ids) + 1)
    ]
    by_chance = [row for row, position in enumerate(positions) if _is_tossed(position)]
    verdicts = _toss(sampler, logits, positions, by_chance, sources)
    others = [row for row in range(len(positions)) if row not in verdicts]
    verdicts |= _compare(sampler, logits, positions, others)
    chosen: list[list[int]] = []
    first = 0
    for request in requests:
        after = first + len(request.draft_token_ids) + 1
        chosen.append(_up_to_the_first_other([verdicts[row] for row in range(first, after)]))
        first = after
    return chosen


def tosses(row: Position | Request) -> bool:
    """Whether chance decides, and not the same chance each time."""
    return not row.params.greedy and row.params.seed is None


def _draft_at(position: Position) -> int | None:
    drafts = position.request.draft_token_ids
    return drafts[position.num_drafts] if position.num_drafts < len(drafts) else None


def _is_tossed(position: Position) -> bool:
    return tosses(position) and _draft_at(position) is not None


def _compare(
    sampler: Sampler, logits: torch.Tensor, positions: list[Position], rows: list[int]
) -> dict[int, Verdict]:
    """By row what the sampler chooses, as it does without drafts."""
    if not rows:
        return {}
    some = [positions[row] for row in rows]
    tokens = sampler.sample(logits if len(rows) == len(logits) else logits[rows], some)
    found = zip(rows, tokens, map(_draft_at, some), strict=True)
    return {row: Verdict(token, token == draft) for row, token, draft in found}


def _toss(
    sampler: Sampler,
    logits: torch.Tensor,
    positions: list[Position],
    rows: list[int],
    sources: Sources,
) -> dict[int, Verdict]:
    """By row the draft, where it is accepted, else the token in its place."""
    import torch

    if not rows:
        return {}
    some = [positions[row] for row in rows]
    p = normalised(sampler.weights(logits[rows], some))
    drafts = torch.tensor([_draft_at(position) for position in some], device=p.device)
    q = torch.nn.functional.one_hot(drafts, p.shape[-1]).to(p.dtype)
    drawn = [row for row, position in enumerate(some) if position.request in sources]
    if drawn:
        q[drawn] = torch.stack([_source(some[row], sources) for row in drawn])
    uniforms = torch.rand(2, len(rows), dtype=torch.float64).to(p.device)
    tokens, right = judged(p, q, drafts, uniforms)
    found = zip(rows, tokens.tolist(), right.tolist(), strict=True)
    return {row: Verdict(token, is_draft) for row, token, is_draft in found}


def _source(position: Position, sources: Sources) -> torch.Tensor:
    return sources[position.request][position.num_drafts]


def _up_to_the_first_other(verdicts: list[Verdict]) -> list[int]:
    tokens = []
    for verdict in verdicts:
        tokens.append(verdict.token)
        if not verdict.is_draft:
            break
    return tokens
