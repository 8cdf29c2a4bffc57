"""What an engine has done so far, in numbers: throughput, batches, memory, and how well it used the
machine."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_lab.engine.peak import Peak


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """Totals since the engine was made or its metrics were reset; rates are per second in steps,
    so idle time does not count. `running`, `waiting` and `kv_blocks_used` are as of now.

    computed_tokens: through the model, those that a preemption made run again included.
    prompt_tokens: of prompts run to their end, cached ones included. generation_tokens: output.
    seconds, forward_seconds, sampling_seconds: in steps; in the model; in choosing tokens. On a GPU
    the forward returns before it is done, and the wait for it counts as sampling.
    num_bytes, flops: what the steps had to move and compute at least (see `ModelWork`); 0 where
    there is no model, as in a simulation. Rejected drafts count.
    draft_seconds, draft_bytes, draft_flops: the same of proposing drafts, which the others leave
    out. drafted_sequences: over all steps, with drafts. proposed_tokens, judged_tokens,
    accepted_tokens: drafts; those after a request's first wrong one are not judged.
    """

    steps: int
    seconds: float
    forward_seconds: float
    sampling_seconds: float
    prompt_tokens: int
    generation_tokens: int
    computed_tokens: int
    scheduled_sequences: int  # over all steps
    max_batch_size: int  # sequences in one step
    finished: int
    aborted: int
    preemptions: int
    running: int
    waiting: int
    kv_blocks: int
    kv_blocks_used: int
    peak_kv_blocks_used: int
    prefix_queries: int  # tokens looked up in the prefix cache
    prefix_hits: int  # tokens found there
    num_bytes: int
    flops: int
    draft_seconds: float = 0.0
    drafted_sequences: int = 0
    proposed_tokens: int = 0
    judged_tokens: int = 0
    accepted_tokens: int = 0
    draft_bytes: int = 0
    draft_flops: int = 0

    @property
    def acceptance_rate(self) -> float:
        """Share of the proposed drafts that were right; 0 before any."""
        return _rate(self.accepted_tokens, self.proposed_tokens)

    @property
    def acceptance_probability(self) -> float:
        """Share of the judged drafts that were right: alpha of Leviathan et al. 2023, section 2.3,
        which does not depend on how many are proposed."""
        return _rate(self.accepted_tokens, self.judged_tokens)

    @property
    def mean_accepted_length(self) -> float:
        """Tokens that a request with drafts gets in a step, the target's own one included; 0
        before any."""
        return _rate(self.accepted_tokens + self.drafted_sequences, self.drafted_sequences)

    @property
    def prompt_tokens_per_second(self) -> float:
        """Tokens in."""
        return _rate(self.prompt_tokens, self.seconds)

    @property
    def generation_tokens_per_second(self) -> float:
        """Tokens out."""
        return _rate(self.generation_tokens, self.seconds)

    @property
    def mean_batch_size(self) -> float:
        """Sequences per step."""
        return _rate(self.scheduled_sequences, self.steps)

    @property
    def kv_use(self) -> float:
        """Share of the KV cache's blocks that requests hold now."""
        return self.kv_blocks_used / self.kv_blocks

    @property
    def peak_kv_use(self) -> float:
        """The largest share that they held in any step."""
        return self.peak_kv_blocks_used / self.kv_blocks

    @property
    def prefix_hit_rate(self) -> float:
        """Share of the tokens looked up that the prefix cache held; 0 before any."""
        return _rate(self.prefix_hits, self.prefix_queries)

    @property
    def share_outside_forward(self) -> float:
        """Share of the steps' time that the models did not take: sampling and Python."""
        return _rate(self.seconds - self.forward_seconds - self.draft_seconds, self.seconds)

    @property
    def python_share(self) -> float:
        """Share of the steps' time in neither models nor sampler: scheduling, text, bookkeeping."""
        within = self.forward_seconds + self.draft_seconds + self.sampling_seconds
        return _rate(self.seconds - within, self.seconds)

    @property
    def bytes_per_second(self) -> float:
        """Bytes that the model had to move, per second in steps."""
        return _rate(self.num_bytes, self.seconds)

    @property
    def flops_per_second(self) -> float:
        """Floating-point operations of matrix products, per second in steps."""
        return _rate(self.flops, self.seconds)

    def mbu(self, peak: Peak) -> float:
        """Model bandwidth utilisation: achieved share of the memory bandwidth."""
        return self.bytes_per_second / peak.bytes_per_second

    def mfu(self, peak: Peak) -> float:
        """Model FLOP utilisation (PaLM, Chowdhery et al. 2022, appendix B): achieved share of the
        matrix-product rate."""
        return self.flops_per_second / peak.flops_per_second


def _rate(amount: float, per: float) -> float:
    return amount / per if per else 0.0
