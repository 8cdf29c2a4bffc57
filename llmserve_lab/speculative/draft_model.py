"""Drafts from a smaller model, over a KV cache of its own behind the same block tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.draws import draw
from llmserve_lab.engine.position import Position
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.runner import ModelRunner
from llmserve_lab.engine.sampler import Sampler
from llmserve_lab.engine.work import ModelWork, Work
from llmserve_lab.speculative.rejection import normalised
from llmserve_lab.speculative.verifier import Sources, tosses

if TYPE_CHECKING:
    import torch


class DraftModel:
    """Runs a draft model along with the target: every token that the target computes, it computes
    too, at the same place of the same blocks. So shared prefixes, forks, copies and swaps hold for
    both. The settings of a request apply to its drafts as they do to its tokens.

    work: of the draft model. done: of its passes in the latest step.
    """

    def __init__(self, runner: ModelRunner, sampler: Sampler, work: ModelWork) -> None:
        self.runner, self.sampler, self.work = runner, sampler, work
        self.done = Work(0, 0)

    def draft(self, batch: Sequence[Scheduled], room: dict[Request, int]) -> Sources:
        """Compute the batch, then give each request of `room` so many drafts, one after another.
        Returns what those were drawn from that were drawn at random."""
        sources: Sources = {}
        self.done = Work(0, 0)
        logits = self._run(list(batch))
        sampling = [item.request for item in batch if item.samples]
        rows = [row for row, request in enumerate(sampling) if request in room]
        open_ = [sampling[row] for row in rows]
        logits = logits[rows]
        while open_:
            self._add(logits, open_, sources)
            open_ = [r for r in open_ if len(r.draft_token_ids) < room[r]]
            if open_:
                logits = self._run([_latest_draft(request) for request in open_])
        return sources

    def _run(self, batch: list[Scheduled]) -> torch.Tensor:
        step = self.work.of_step(batch)
        self.done = Work(self.done.num_bytes + step.num_bytes, self.done.flops + step.flops)
        return self.runner.run(batch)

    def num_computed(self, num_accepted: int, num_drafts: int) -> int:
        """Of a request's right drafts, those whose keys and values are all there: the last draft
        was never run through the draft model."""
        return min(num_accepted, num_drafts - 1)

    def _add(self, logits: torch.Tensor, requests: list[Request], sources: Sources) -> None:
        """One draft more for each request. logits: (requests, vocabulary)."""
        positions = [Position(r, len(r.draft_token_ids)) for r in requests]
        by_chance = [row for row, position in enumerate(positions) if tosses(position)]
        others = [row for row, position in enumerate(positions) if not tosses(position)]
        if others:
            tokens = self.sampler.sample(logits[others], [positions[row] for row in others])
            for row, token in zip(others, tokens, strict=True):
                requests[row].draft_token_ids.append(token)
        if by_chance:
            self._draw(logits[by_chance], [positions[row] for row in by_chance], sources)

    def _draw(self, logits: torch.Tensor, positions: list[Position], sources: Sources) -> None:
        import torch

        q = normalised(self.sampler.weights(logits, positions))
        uniforms = torch.rand(len(positions), dtype=torch.float64).to(q.device)
        for position, token, row in zip(positions, draw(q, uniforms).tolist(), q, strict=True):
            position.request.draft_token_ids.append(token)
            sources.setdefault(position.request, []).append(row)


def _latest_draft(request: Request) -> Scheduled:
    place = len(request.token_ids) + len(request.draft_token_ids) - 1
    return Scheduled(request, place, 1)
