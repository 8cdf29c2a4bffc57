"""One prompt against an engine's prefix cache: which of its blocks were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SHOWN = 4  # hex digits of a digest


@dataclass(frozen=True, slots=True)
class Lookup:
    """digests: the first hex digits of each full block's chained digest. hits: prompt tokens that
    were found, not computed. ttft: seconds to the first token."""

    label: str
    token_ids: tuple[int, ...]
    digests: tuple[str, ...]
    block_size: int
    hits: int
    ttft: float

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def computed(self) -> int:
        """Prompt tokens that the engine had to compute."""
        return self.num_tokens - self.hits

    def __str__(self) -> str:
        return (
            f"{self.hits:>3} tokens found, {self.computed:>3} computed, first token after "
            f"{1000 * self.ttft:5.1f} ms"
        )


def look_up(llm: Any, token_ids: list[int], salt: str = "", label: str = "") -> Lookup:
    """Serve a prompt for one token. llm: an idle engine, with prefix caching or without; the prompt
    is in its cache afterwards, if it keeps one."""
    from llmserve_lab import SamplingParams

    prompt = {"prompt_token_ids": list(token_ids)} | ({"cache_salt": salt} if salt else {})
    (output,) = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=1))
    return Lookup(
        label=label,
        token_ids=tuple(token_ids),
        digests=digests(llm.pool, token_ids, salt),
        block_size=llm.pool.block_size,
        hits=output.metrics.num_hit_tokens,
        ttft=output.metrics.ttft,
    )


def digests(pool: Any, token_ids: list[int], salt: str = "") -> tuple[str, ...]:
    """The chained digest of each full block, by the engine's own pool, shortened."""
    size = pool.block_size
    parent: Any = None
    found: list[str] = []
    for start in range(0, len(token_ids) - size + 1, size):
        parent = pool.extend(parent, token_ids[start : start + size], salt)
        found.append(parent.digest.hex()[:SHOWN])
    return tuple(found)
