"""From logits to tokens: greedy, temperature, top-k, top-p, min-p; a whole batch at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    import torch

MINUS_INFINITY = float("-inf")


class Sampler:
    """Draws with one random stream per seeded request, so that the neighbours in a batch never
    change a seeded text."""

    def __init__(self, eos_token_ids: frozenset[int]) -> None:
        self.eos_token_ids = eos_token_ids
        self._streams: dict[str, torch.Generator] = {}

    def forget(self, request: Request) -> None:
        """Drop the random stream of a request that has ended."""
        self._streams.pop(request.request_id, None)

    def sample(self, logits: torch.Tensor, requests: list[Request]) -> list[int]:
        """One token per row. logits: (rows, vocabulary), any float dtype."""
        logits = self._without_early_end(logits.float(), requests)
        tokens = logits.argmax(-1)
        drawn = [row for row, request in enumerate(requests) if not request.params.greedy]
        if drawn:
            chosen = [requests[row] for row in drawn]
            scores = filtered(logits[drawn], [request.params for request in chosen])
            tokens[drawn] = (scores + self._gumbel_noise(scores, chosen)).argmax(-1)
        return tokens.tolist()

    def _without_early_end(self, logits: torch.Tensor, requests: list[Request]) -> torch.Tensor:
        early = [r.num_output_tokens < r.params.min_tokens for r in requests]
        if any(early):
            logits = logits.clone()  # the model's own output may not be written to
        for row, request in enumerate(requests):
            if early[row]:
                ends = self.eos_token_ids.union(request.params.stop_token_ids or ())
                logits[row, list(ends)] = MINUS_INFINITY
        return logits

    def _gumbel_noise(self, scores: torch.Tensor, requests: list[Request]) -> torch.Tensor:
        """argmax(log p + Gumbel noise) is a draw from p (Gumbel 1954)."""
        import torch

        uniform = torch.rand(scores.shape, device=scores.device)
        for row, request in enumerate(requests):
            if request.params.seed is not None:
                stream = self._stream(request)
                uniform[row] = torch.rand(scores.shape[1], generator=stream).to(scores.device)
        tiny = torch.finfo(uniform.dtype).tiny
        return -torch.log(-torch.log(uniform.clamp(tiny, 1 - torch.finfo(uniform.dtype).eps)))

    def _stream(self, request: Request) -> torch.Generator:
        import torch

        if request.request_id not in self._streams:
            seed = request.params.seed
            assert seed is not None
            self._streams[request.request_id] = torch.Generator().manual_seed(seed)
        return self._streams[request.request_id]


def filtered(logits: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """Log-probabilities after temperature, with what top-k, top-p and min-p exclude at -inf.

    logits: (rows, vocabulary) float32. Returns the same shape. The likeliest token always stays.
    """
    scores = logits / _column(logits, [p.temperature for p in params])
    scores = scores.log_softmax(-1)
    if all(p.top_k <= 0 and p.top_p >= 1 and p.min_p <= 0 for p in params):
        return scores
    ranked, order = scores.sort(stable=True, dim=-1, descending=True)
    keep = _kept(ranked, params)
    return scores.scatter(-1, order, ranked.masked_fill(~keep, MINUS_INFINITY))


def _kept(ranked: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """(rows, vocabulary) bool for log-probabilities in falling order."""
    import torch

    vocabulary = ranked.shape[-1]
    ranks = torch.arange(vocabulary, device=ranked.device)
    keep = ranks < _column(ranked, [p.top_k if p.top_k > 0 else vocabulary for p in params])
    probabilities = ranked.masked_fill(~keep, MINUS_INFINITY).softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    limits = [p.top_p if p.top_p < 1 else float("inf") for p in params]
    keep &= before < _column(ranked, limits)
    keep &= probabilities >= probabilities[:, :1] * _column(ranked, [p.min_p for p in params])
    keep[:, 0] = True
    return keep


def _column(like: torch.Tensor, values: list[float]) -> torch.Tensor:
    import torch

    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
