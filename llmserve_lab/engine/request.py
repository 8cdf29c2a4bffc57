"""One request on its way through the engine."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from llmserve_lab.engine.logprob import Entry
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.kv_cache import Prefix


class Status(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(eq=False, slots=True)
class Request:
    """A prompt and what has come of it.

    There is no phase: `num_computed_tokens` catches up with `token_ids`, by a whole prompt, a
    chunk of it or one token at a time, and a token is sampled whenever it has caught up.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    arrival: float = 0.0  # set when it is queued
    priority: int = 0  # smaller is more urgent
    cache_salt: str = ""  # only requests with the same one share cached prefixes
    number: int = 0  # in the order of arrival, where a scheduler needs one
    prompt: str | None = None  # its text, where it was given as text
    token_ids: list[int] = field(init=False)
    draft_token_ids: list[int] = field(default_factory=list)  # guesses, within one step
    num_computed_tokens: int = 0
    num_reached_tokens: int = 0  # the most that were ever computed: a preemption loses them
    block_table: list[int] = field(default_factory=list)
    prefixes: list[Prefix] = field(default_factory=list)  # of the full, computed blocks
    shares_blocks: bool = False  # since a fork, until it writes: its last block may be others' too
    forks: list[Request] = field(default_factory=list)  # continuations that wait for this prompt
    status: Status = Status.WAITING
    finish_reason: str | None = None
    first_scheduled: float | None = None
    token_times: list[float] = field(default_factory=list)
    logprobs: list[Entry] = field(default_factory=list)  # per output token, where asked for
    prompt_logprobs: list[Entry | None] = field(default_factory=list)
    """Of the prompt tokens run so far, where asked for; one list for all continuations."""
    num_preemptions: int = 0
    num_hit_tokens: int = 0  # that the latest admission shared with others, outputs included

    def __post_init__(self) -> None:
        self.token_ids = list(self.prompt_token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def is_being_scored(self) -> bool:
        """Whether prompt tokens still have to run for their logprobs, be they cached or not."""
        asked = self.params.prompt_logprobs is not None
        return asked and len(self.prompt_logprobs) < self.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[len(self.prompt_token_ids) :]

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def tokens_ahead(self) -> list[int]:
        """Drafts that are taken for right: none, see `Position`."""
        return []

    def part(self) -> list[Request]:
        """The continuations that still wait for this prompt; they do no more."""
        forks, self.forks = self.forks, []
        return [fork for fork in forks if fork.status is not Status.FINISHED]
