"""What is asked of every engine: token ids and output lengths, the same at every call."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.comparison.models import LAB_TARGET, SMALL, vocabulary_of
from llmserve_lab.simulate import SharedPrefix, Uniform, Workload
from llmserve_lab.simulate.prompts import RandomPrompts

PROMPTS, OUTPUTS = Uniform(16, 128), Uniform(8, 128)
PREFIX, OWN, SHORT = Uniform(512, 512), Uniform(16, 32), Uniform(8, 16)
WARM_UP_REQUESTS, WARM_UP_TOKENS = 8, 8


@dataclass(frozen=True)
class Work:
    """Requests that all come at once. repeats: timed runs of each contestant."""

    name: str
    model: str
    dtype: str
    prompts: tuple[tuple[int, ...], ...]
    max_tokens: tuple[int, ...]
    repeats: int

    @property
    def num_output_tokens(self) -> int:
        return sum(self.max_tokens)

    @property
    def warm_up(self) -> Work:
        """Untimed, before the first run of each contestant: the first requests, cut short."""
        count = min(WARM_UP_REQUESTS, len(self.prompts))
        short = tuple(min(WARM_UP_TOKENS, tokens) for tokens in self.max_tokens[:count])
        return Work(self.name, self.model, self.dtype, self.prompts[:count], short, 1)


def works(quick: bool = False) -> dict[str, Work]:
    """By name. quick: so small that it shows only whether everything works."""
    few = 4 if quick else None
    return {
        work.name: work
        for work in (
            _mixed("mixed", few or 64, LAB_TARGET, "float32", 1 if quick else 5),
            _mixed("mixed, bf16", few or 32, SMALL, "bfloat16", 1 if quick else 3),
            _shared_prefix(few or 32, 1 if quick else 5),
            _single(8 if quick else 128, 1 if quick else 5),
        )
    }


def conversations() -> Work:
    """About as long as those of ShareGPT, on which PagedAttention's waste was measured (Kwon et al.
    2023, figure 2); only to count KV slots."""
    lengths = Uniform(16, 512)
    drawn = Workload.draw(24, lengths, lengths)
    return _drawn("conversations", LAB_TARGET, "float32", drawn, 1)


def _mixed(name: str, count: int, model: str, dtype: str, repeats: int) -> Work:
    return _drawn(name, model, dtype, Workload.draw(count, PROMPTS, OUTPUTS), repeats)


def _shared_prefix(count: int, repeats: int) -> Work:
    drawn = Workload.draw(count, OWN, SHORT, prefix=SharedPrefix(PREFIX))
    return _drawn("shared prefix", LAB_TARGET, "float32", drawn, repeats)


def _single(tokens: int, repeats: int) -> Work:
    drawn = Workload.draw(1, Uniform(64, 64), Uniform(tokens, tokens))
    return _drawn("single stream", LAB_TARGET, "float32", drawn, repeats)


def _drawn(name: str, model: str, dtype: str, drawn: Workload, repeats: int) -> Work:
    maker = RandomPrompts(vocabulary_of(model))
    prompts = tuple(tuple(maker.make(ask, number)) for number, ask in enumerate(drawn.asks))
    limits = tuple(ask.output_tokens for ask in drawn.asks)
    return Work(name, model, dtype, prompts, limits, repeats)
