"""From logits to tokens: edited, greedy or filtered and drawn; a whole batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.draws import draw, uniform
from llmserve_lab.engine.filters import probabilities
from llmserve_lab.engine.logit_edits import LogitEdits
from llmserve_lab.engine.position import Row
from llmserve_lab.engine.request import Request

if TYPE_CHECKING:
    import torch


class Sampler:
    """Chooses a token per row. A seeded request's choice depends on its seed, its number of output
    tokens and its logits alone; the others draw from torch's global random state."""

    def __init__(self, eos_token_ids: frozenset[int]) -> None:
        self.eos_token_ids = eos_token_ids
        self.edits = LogitEdits(eos_token_ids)

    def forget(self, request: Request) -> None:
        """Drop what was kept of a request that has ended."""
        self.edits.forget(request)

    def sample(self, logits: torch.Tensor, requests: Sequence[Row]) -> list[int]:
        """One token per row. logits: (rows, vocabulary), any float dtype; left as they are."""
        return self.choose(logits, requests).tolist()

    def choose(self, logits: torch.Tensor, requests: Sequence[Row]) -> torch.Tensor:
        """As `sample`, but the tokens stay on the device: (rows,) int64."""
        logits = self.edits.apply(logits.float(), requests)
        tokens = _likeliest(logits)
        drawn = [row for row, request in enumerate(requests) if not request.params.greedy]
        if drawn:
            chosen = [requests[row] for row in drawn]
            weights = probabilities(logits[drawn], [request.params for request in chosen])
            tokens[drawn] = draw(weights, _uniforms(chosen).to(weights.device))
        return tokens

    def weights(self, logits: torch.Tensor, requests: Sequence[Row]) -> torch.Tensor:
        """What `sample` would draw from, for rows that are not greedy: (rows, vocabulary) float32,
        not normalised."""
        edited = self.edits.apply(logits.float(), requests)
        return probabilities(edited, [request.params for request in requests])


def eos_token_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a text: as the model's generation settings say, else the tokenizer."""
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = tokenizer.eos_token_id
    return frozenset([] if ids is None else [ids] if isinstance(ids, int) else ids)


def _likeliest(logits: torch.Tensor) -> torch.Tensor:
    """The first of the largest in each row. On a CPU NumPy finds it far sooner than torch."""
    import torch

    if logits.device.type != "cpu":
        return logits.argmax(-1)
    return torch.from_numpy(logits.detach().numpy().argmax(-1))


def _uniforms(requests: Sequence[Row]) -> torch.Tensor:
    """(requests,) float64 in [0, 1)."""
    import torch

    numbers = torch.rand(len(requests), dtype=torch.float64)
    for row, request in enumerate(requests):
        if request.params.seed is not None:
            numbers[row] = uniform(request.params.seed, request.num_output_tokens)
    return numbers
