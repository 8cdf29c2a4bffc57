"""A learner's own choice of tokens inside the real engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llmserve_lab.engine.sampler import Sampler

if TYPE_CHECKING:
    import torch

    from llmserve_lab.engine.position import Row

Choose = Callable[["torch.Tensor"], int]


class OwnSampler(Sampler):
    """Asks `choose` for each row of logits."""

    def __init__(self, eos_token_ids: frozenset[int], choose: Choose) -> None:
        super().__init__(eos_token_ids)
        self.own = choose

    def choose(self, logits: torch.Tensor, requests: Sequence[Row]) -> torch.Tensor:
        import torch

        rows = self.edits.apply(logits.float(), requests)
        tokens = [_checked(self.own(row), rows.shape[-1]) for row in rows]
        return torch.tensor(tokens, device=logits.device)

    def weights(self, logits: torch.Tensor, requests: Sequence[Row]) -> torch.Tensor:
        """All on the token that `choose` chooses."""
        import torch

        tokens = self.choose(logits, requests)
        return torch.nn.functional.one_hot(tokens, logits.shape[-1]).float()


def use_sampler(llm: Any, choose: Choose) -> None:
    """Let every token of `llm` be chosen by `choose(logits)`. logits: (vocabulary,) float32, one
    request's at a time. Returns a token id. Temperature and filters of the request are ignored."""
    llm._engine.sampler = OwnSampler(llm._engine.sampler.eos_token_ids, choose)


def _checked(token: Any, vocabulary: int) -> int:
    if type(token) is not int or not 0 <= token < vocabulary:
        raise ValueError(
            f"Your function chose {token!r}: return a token id, a plain int from 0 to "
            f"{vocabulary - 1}."
        )
    return token
