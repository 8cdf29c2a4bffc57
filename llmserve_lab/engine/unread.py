"""Tokens that were chosen on the device and that nobody has read yet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from llmserve_lab.attention.upload import upload
from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.request import Request

if TYPE_CHECKING:
    import torch

UNKNOWN = -1  # in the place of a token id that only the device knows


class Unread:
    """One token for each of `requests`, on its way to host memory. tokens: (requests,) int64.
    logits: (requests, vocabulary), what they were chosen by; kept where somebody asks for logprobs.
    """

    def __init__(self, tokens: torch.Tensor, requests: list[Request], logits: torch.Tensor) -> None:
        self.tokens, self.requests = tokens, requests
        scored = any(request.params.logprobs is not None for request in requests)
        self.logits = logits.clone() if scored else None  # a captured graph writes over them
        self._place = {request: index for index, request in enumerate(requests)}
        self._host, self._arrived = _sent_home(tokens)

    def fill(self, ids: torch.Tensor, batch: Sequence[Scheduled]) -> None:
        """Write the tokens where a flattened batch has them, on the device. ids: (tokens,)."""
        ends = accumulate(item.num_tokens for item in batch)
        places = [
            (end - 1, self._place[item.request])
            for item, end in zip(batch, ends, strict=True)
            if item.samples and item.request in self._place
        ]
        if places:
            rows, indices = upload(places, ids.device).T
            ids[rows] = self.tokens[indices]

    def read(self) -> list[int]:
        """The tokens; waits until the device has chosen them, and for nothing that it was asked to
        do since."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host.tolist()


def _sent_home(tokens: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """A copy in host memory, and the event that says when it is there, if it takes time."""
    import torch

    if tokens.device.type != "cuda":
        return tokens, None
    host = torch.empty_like(tokens, device="cpu", pin_memory=True)
    host.copy_(tokens, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return host, arrived
