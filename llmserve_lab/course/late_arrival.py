"""A long prompt that arrives while others decode: what it does to their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

STEPS_SHOWN = 3  # before it came, and after its first token


@dataclass(frozen=True, slots=True)
class LateArrival:
    """One run. budget: max_num_batched_tokens. steps: snapshots from shortly before the arrival to
    shortly after the newcomer's first token. first, last: its prefill's steps, as places in
    `steps`. num_bytes: moved by the model in these prefill steps. tokens: of every request, in
    order."""

    budget: int
    steps: tuple[Any, ...]
    first: int
    last: int
    num_bytes: int
    tokens: tuple[tuple[int, ...], ...]

    @property
    def prefill_steps(self) -> int:
        return self.last - self.first + 1

    @property
    def largest_step(self) -> int:
        """Tokens in the fullest step."""
        return max(step.num_tokens for step in self.steps)

    @property
    def first_token_ms(self) -> float:
        """From the start of the newcomer's first step to its first token."""
        first, last = self.steps[self.first], self.steps[self.last]
        return 1000 * (last.started + last.seconds - first.started)

    @property
    def longest_gap_ms(self) -> float:
        """The longest wait of the others between two tokens: each step gives them one."""
        return 1000 * max(step.seconds for step in self.steps)

    def __str__(self) -> str:
        return (
            f"budget {self.budget:>4}: steps {self.prefill_steps:>2}, "
            f"TTFT {self.first_token_ms:4.0f} ms; "
            f"at most {self.largest_step:>3} tokens, {self.longest_gap_ms:4.0f} ms a step"
        )


def arrive_late(model: Any, others: Sequence[Any], newcomer: Any, budget: int) -> LateArrival:
    """Let `others` decode on an engine with `budget` tokens a step; then `newcomer`, a prompt,
    arrives. model: what `load` returned.

    Raises:
        ValueError: the others do not fit into one step, so that they would not all decode.
    """
    from llmserve_lab import LLM, SamplingParams

    if budget <= len(others):
        raise ValueError(f"A budget of {budget} leaves no token for a prompt beside {len(others)}.")
    llm = LLM(model, max_num_batched_tokens=budget, trace=True)
    params = SamplingParams(temperature=0.0, max_tokens=llm.max_model_len, ignore_eos=True)
    ids = [llm.add_request(prompt, params)[0] for prompt in others]
    while not all(_decoding(step, ids) for step in _latest(llm.trace)):
        llm.step()
    came, before = len(llm.trace), llm.metrics.num_bytes
    (late,) = llm.add_request(newcomer, params)
    while late not in {token.request_id for token in llm.trace[-1].sampled}:
        llm.step()
    last, moved = len(llm.trace) - 1, llm.metrics.num_bytes - before
    for _ in range(STEPS_SHOWN):
        llm.step()
    tokens = _tokens(llm.trace, [*ids, late])
    for request_id in (*ids, late):
        llm.abort(request_id)
    shift = came - STEPS_SHOWN
    shown = tuple(llm.trace.steps[shift:])
    return LateArrival(budget, shown, came - shift, last - shift, moved, tokens)


def _latest(trace: Any) -> list[Any]:
    """As many steps as are shown before the arrival; None stands for one that has not run."""
    return ([None] * STEPS_SHOWN + trace.steps)[-STEPS_SHOWN:]


def _decoding(step: Any, ids: list[str]) -> bool:
    """Whether every request got a token in this step, and no prompt was read."""
    if step is None or any(item.num_prompt_tokens for item in step.scheduled):
        return False
    return set(ids) <= {token.request_id for token in step.sampled}


def _tokens(trace: Any, ids: list[str]) -> tuple[tuple[int, ...], ...]:
    """Each request's output so far."""
    made: dict[str, list[int]] = {request_id: [] for request_id in ids}
    for step in trace:
        for token in step.sampled:
            made[token.request_id].append(token.token_id)
    return tuple(tuple(made[request_id]) for request_id in ids)
