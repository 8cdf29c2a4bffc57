"""What a request does to the model's logits before a token is chosen, in vLLM's order: allowed
tokens, ends that come too early, bias, penalties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmserve_lab.engine.filters import column
from llmserve_lab.engine.position import Row
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.engine.token_counts import TokenCounts

if TYPE_CHECKING:
    import torch

MINUS_INFINITY = float("-inf")


class LogitEdits:
    """Edits the rows that ask for it, together; what a request needs each time is made once."""

    def __init__(self, eos_token_ids: frozenset[int]) -> None:
        self.eos_token_ids = eos_token_ids
        self._counts = TokenCounts()
        self._forbidden: dict[str, torch.Tensor] = {}  # (vocabulary,) bool
        self._biases: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # token ids, values

    def __len__(self) -> int:
        """How much is kept of requests."""
        return len({*self._forbidden, *self._biases}) + len(self._counts)

    def forget(self, request: Request) -> None:
        """Drop what was kept of a request that has ended."""
        self._counts.forget(request)
        self._forbidden.pop(request.request_id, None)
        self._biases.pop(request.request_id, None)

    def apply(self, logits: torch.Tensor, requests: Sequence[Row]) -> torch.Tensor:
        """logits: (rows, vocabulary) float32, not written to. Returns them, or an edited copy."""
        import torch

        rows = [row for row, request in enumerate(requests) if request.params.edits_logits]
        if not rows:
            return logits
        index = torch.tensor(rows, device=logits.device)
        edited, chosen = logits[index], [requests[row] for row in rows]
        self._forbid(edited, chosen)
        self._delay_ends(edited, chosen)
        self._add_bias(edited, chosen)
        self._penalise(edited, chosen)
        return edited if len(rows) == len(requests) else logits.index_copy(0, index, edited)

    def _forbid(self, logits: torch.Tensor, requests: Sequence[Row]) -> None:
        import torch

        rows = [row for row, r in enumerate(requests) if r.params.allowed_token_ids]
        if rows:
            masks = torch.stack([self._mask(requests[row], logits) for row in rows])
            logits[rows] = logits[rows].masked_fill(masks, MINUS_INFINITY)

    def _mask(self, request: Row, logits: torch.Tensor) -> torch.Tensor:
        import torch

        if request.request_id not in self._forbidden:
            mask = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
            mask[list(request.params.allowed_token_ids or ())] = False
            self._forbidden[request.request_id] = mask
        return self._forbidden[request.request_id]

    def _delay_ends(self, logits: torch.Tensor, requests: Sequence[Row]) -> None:
        pairs = [
            (row, token)
            for row, request in enumerate(requests)
            if request.num_output_tokens < request.params.min_tokens
            for token in self.eos_token_ids.union(request.params.stop_token_ids or ())
        ]
        if pairs:
            rows, tokens = map(list, zip(*pairs, strict=True))
            logits[rows, tokens] = MINUS_INFINITY

    def _add_bias(self, logits: torch.Tensor, requests: Sequence[Row]) -> None:
        import torch

        rows = [row for row, request in enumerate(requests) if request.params.logit_bias]
        if rows:
            biases = [self._bias(requests[row], logits) for row in rows]
            where = [r for r, (tokens, _) in zip(rows, biases, strict=True) for _ in tokens]
            index = torch.tensor(where, device=logits.device)
            tokens, values = (torch.cat(parts) for parts in zip(*biases, strict=True))
            logits.index_put_((index, tokens), values, accumulate=True)

    def _bias(self, request: Row, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        if request.request_id not in self._biases:
            bias = request.params.logit_bias or {}
            tokens = torch.tensor(list(bias), device=logits.device)
            values = torch.tensor(list(bias.values()), dtype=logits.dtype, device=logits.device)
            self._biases[request.request_id] = tokens, values
        return self._biases[request.request_id]

    def _penalise(self, logits: torch.Tensor, requests: Sequence[Row]) -> None:
        rows = [row for row, r in enumerate(requests) if r.params.penalises]
        if rows:
            chosen = [requests[row] for row in rows]
            tokens, counts = self._counts.of(chosen, logits.device)
            found = logits[rows].gather(1, tokens)
            found = penalised(found, counts, [request.params for request in chosen])
            logits[rows] = logits[rows].scatter(1, tokens, found)


def penalised(
    logits: torch.Tensor, counts: torch.Tensor, params: list[SamplingParams]
) -> torch.Tensor:
    """Repetition penalty, then frequency and presence penalty. logits: (rows, tokens), those that
    prompt or output hold; counts: how often the output does, of the same shape."""
    import torch

    factor = column(logits, [p.repetition_penalty for p in params])
    logits = torch.where(logits > 0, logits / factor, logits * factor)
    frequency = column(logits, [p.frequency_penalty for p in params])
    presence = column(logits, [p.presence_penalty for p in params])
    return logits - frequency * counts - presence * (counts > 0)
