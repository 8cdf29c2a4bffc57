"""What stands for a model where a scheduler is judged: fast, exact, and honest about its memory."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from llmserve_lab.engine.batch import Scheduled
from llmserve_lab.engine.request import Request
from llmserve_lab.simulate.clock import VirtualClock

VOCABULARY = 97
UNWRITTEN = 255  # what a slot holds that no step has written


class Ledger:
    """Runner and sampler in one. The next token follows from all tokens so far, read back from the
    slots where steps have written them: whoever leaves one out, or overwrites it, gets another
    answer. Each step takes one unit of `clock`.

    tokens: what each request was answered.
    """

    eos_token_ids: frozenset[int] = frozenset()

    def __init__(self, clock: VirtualClock, num_blocks: int, block_size: int) -> None:
        self._clock, self._size = clock, block_size
        self._slots = bytearray([UNWRITTEN] * (num_blocks * block_size))
        self.tokens: dict[str, list[int]] = {}

    def run(self, batch: list[Scheduled]) -> list[bytes]:
        """Write the tokens of a step; what is read back of each request that gets a new one."""
        for item in batch:
            for place in range(item.start, item.start + item.num_tokens):
                self._slots[self._slot(item.request, place)] = item.request.token_ids[place]
        self._clock.advance(1.0)
        return [self._read(item) for item in batch if item.samples]

    def sample(self, read: Sequence[bytes], requests: list[Request]) -> list[int]:
        """The next token of each request."""
        chosen = [next_token(tokens) for tokens in read]
        for request, token in zip(requests, chosen, strict=True):
            self.tokens.setdefault(request.request_id, []).append(token)
        return chosen

    def forget(self, request: Request) -> None:
        """What was answered is kept."""

    def _slot(self, request: Request, place: int) -> int:
        return request.block_table[place // self._size] * self._size + place % self._size

    def _read(self, item: Scheduled) -> bytes:
        starts = [block * self._size for block in item.request.block_table]
        held = b"".join(self._slots[start : start + self._size] for start in starts)
        return held[: item.start + item.num_tokens]


def next_token(tokens: bytes) -> int:
    """After these tokens, by their checksum."""
    return zlib.crc32(tokens) % VOCABULARY


def answer_of(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """What a request must be answered."""
    tokens = bytes(prompt)
    for _ in range(num_tokens):
        tokens += bytes([next_token(tokens)])
    return list(tokens[len(prompt) :])
