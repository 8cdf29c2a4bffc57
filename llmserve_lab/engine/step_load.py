"""What a step asks of a machine, counted from the scheduler's batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmserve_lab.engine.batch import Scheduled


@dataclass(frozen=True, slots=True)
class StepLoad:
    """tokens: through the linear layers. sequences: requests that run. samples: rows of logits, one
    for each request that gets a new token and one for each draft. kv_read: cached tokens that
    attention reads, each request's once. pairs: (query, key) pairs that attention multiplies,
    causal. decode_kv: the part of kv_read, and of pairs, of requests with one token. chunks:
    requests with more than one."""

    tokens: int
    sequences: int
    samples: int
    kv_read: int
    pairs: int
    decode_kv: int
    chunks: int = 0

    @classmethod
    def of(cls, batch: Sequence[Scheduled]) -> StepLoad:
        """Count a batch."""
        tokens = samples = kv_read = pairs = decode_kv = chunks = 0
        for item in batch:
            start, count = item.start, item.num_tokens
            end = start + count
            tokens += count
            kv_read += end
            samples += max(0, min(count, end - len(item.request.token_ids) + 1))
            if count == 1:
                decode_kv += end
            else:
                chunks += 1
                pairs += count * start + count * (count + 1) // 2
        return cls(tokens, len(batch), samples, kv_read, pairs + decode_kv, decode_kv, chunks)

    @classmethod
    def decode(cls, batch_size: int, context: int) -> StepLoad:
        """`batch_size` requests that add one token each and then hold `context`."""
        kv = batch_size * context
        return cls(batch_size, batch_size, batch_size, kv, kv, kv)

    @classmethod
    def prefill(cls, num_tokens: int, start: int = 0) -> StepLoad:
        """The last chunk of one prompt: `num_tokens` tokens after `start` that are computed."""
        if num_tokens == 1:
            return cls.decode(1, start + 1)
        pairs = num_tokens * start + num_tokens * (num_tokens + 1) // 2
        return cls(num_tokens, 1, 1, start + num_tokens, pairs, 0, 1)
