"""How likely the model found each token: of the prompt, of the output, and the likeliest others.

All from the model's own distribution: softmax of its logits as they are, before bias, penalties,
temperature and filters (what vLLM calls raw_logprobs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.logprob import Entry, Logprob
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.scheduler import Scheduled

if TYPE_CHECKING:
    import torch

WHOLE_VOCABULARY = -1


class Scorer:
    """Notes log-probabilities for the requests that ask for them; the others pay nothing.

    token_name: the text of one token.
    """

    def __init__(self, token_name: Callable[[int], str]) -> None:
        self._token_name = token_name

    def note_prompts(self, batch: Sequence[Scheduled], logits: Any) -> Any:
        """Score prompt tokens. logits: what the runner returned, the rows to sample from and then
        one for each position of `scored`. Returns the rows to sample from."""
        asked = [item for item in batch if item.request.params.prompt_logprobs is not None]
        if not asked:
            return logits
        positions = [(item.request, position) for item in asked for position in scored(item)]
        for item in asked:
            _skip(item)
        if not positions:
            return logits
        tokens = [request.prompt_token_ids[position + 1] for request, position in positions]
        counts = [request.params.prompt_logprobs or 0 for request, _ in positions]
        first = len(logits) - len(positions)
        entries = self._entries(logits[first:], tokens, counts)
        for (request, position), entry in zip(positions, entries, strict=True):
            if position + 1 == len(request.prompt_logprobs):
                request.prompt_logprobs.append(entry)  # else another continuation has done it
        return logits[:first]

    def note_outputs(
        self, logits: Any, requests: Sequence[Request], chosen: Sequence[Sequence[int]]
    ) -> None:
        """Score the tokens just chosen for each request. logits: of each request the rows after its
        latest token and after its drafts, of which the first gave its first token and so on."""
        rows: list[int] = []
        owners: list[Request] = []
        tokens: list[int] = []
        first = 0
        for request, new in zip(requests, chosen, strict=True):
            if request.params.logprobs is not None:
                rows += range(first, first + len(new))
                owners += [request] * len(new)
                tokens += new
            first += 1 + len(request.draft_token_ids)
        if rows:
            counts = [owner.params.logprobs or 0 for owner in owners]
            entries = self._entries(logits[rows], tokens, counts)
            for owner, entry in zip(owners, entries, strict=True):
                owner.logprobs.append(entry)

    def _entries(self, logits: torch.Tensor, tokens: list[int], counts: list[int]) -> list[Entry]:
        """Per row the token that is there, then the `counts` likeliest. logits: (rows, vocabulary);
        what is worked out is not kept."""
        import torch

        scores = logits.float().log_softmax(-1)
        own = scores.gather(1, torch.tensor(tokens, device=scores.device)[:, None])
        ranks = ((scores > own).sum(-1) + 1).tolist()
        counts = [scores.shape[-1] if n == WHOLE_VOCABULARY else n for n in counts]
        best, ids = scores.topk(max(counts))
        rows = zip(
            tokens, own[:, 0].tolist(), ranks, counts, best.tolist(), ids.tolist(), strict=True
        )
        return [
            {token: Logprob(score, rank, self._token_name(token))}
            | self._likeliest(likeliest[:count], tops[:count])
            for token, score, rank, count, tops, likeliest in rows
        ]

    def _likeliest(self, tokens: list[int], scores: list[float]) -> Entry:
        """Equally likely tokens share a rank."""
        found: Entry = {}
        rank = 1
        for place, (token, score) in enumerate(zip(tokens, scores, strict=True)):
            if place and score < scores[place - 1]:
                rank = place + 1
            found[token] = Logprob(score, rank, self._token_name(token))
        return found


def _skip(item: Scheduled) -> None:
    """Nothing can be said of the first token, nor of those whose logits were not computed."""
    known = item.request.prompt_logprobs
    unknown = min(item.start + 1, item.request.num_prompt_tokens) - len(known)
    known += [None] * unknown


def scored(item: Scheduled) -> range:
    """The positions that this step computes and whose next prompt token is still to be scored.
    After a preemption known ones are computed again, but not scored again."""
    request, end = item.request, item.start + item.num_tokens
    if request.params.prompt_logprobs is None:
        return range(0)
    first = max(item.start, len(request.prompt_logprobs) - 1, 0)
    return range(first, max(first, min(end, request.num_prompt_tokens - 1)))
