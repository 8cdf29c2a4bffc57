"""Chapter 12: what twice the throughput does for each of those who wait."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

USERS, TOKENS = 8, 12
SLOTS, MORE_SLOTS = 2, 4  # requests in a step, before and after


def twice_the_tokens_a_step_is_not_half_the_wait() -> str:
    rate, wait = {}, {}
    for slots in (SLOTS, MORE_SLOTS):
        llm = _served(slots)
        rate[slots] = llm.metrics.generation_tokens / llm.metrics.steps
        wait[slots] = _steps_to_the_end(llm)
        assert set(_steps_decoding(llm).values()) == {TOKENS}
    assert rate[MORE_SLOTS] == 2 * rate[SLOTS]
    factors = [wait[SLOTS][user] / wait[MORE_SLOTS][user] for user in wait[SLOTS]]
    assert min(factors) == 1.0 and any(1 < factor < 2 for factor in factors)
    unchanged = factors.count(1.0)
    between = sum(1 < factor < 2 for factor in factors)
    return (
        f"{USERS} users at once, {TOKENS} tokens each. With room for {MORE_SLOTS} in place of "
        f"{SLOTS} the engine made {rate[MORE_SLOTS]:g} tokens a step in place of {rate[SLOTS]:g}. "
        f"Counted in steps, {unchanged} of them waited exactly as long as before. For {between} "
        f"the wait fell by a factor below 2, and for {USERS - unchanged - between} by 2. Every one "
        f"was still in {TOKENS} steps, one for each token."
    )


def _served(slots: int) -> Any:
    from llmserve_lab import LLM, SamplingParams, load
    from llmserve_lab.course.experiments import held_out_prompts

    model = load("lab-target")
    prompts = held_out_prompts(model.tokenizer, count=USERS, num_tokens=16)
    llm = LLM(model, max_num_seqs=slots, num_blocks=USERS * 2, trace=True)
    llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True))
    return llm


def _steps_to_the_end(llm: Any) -> dict[str, int]:
    """Steps until each request's last token; all had come before the first."""
    return {token.request_id: step.step + 1 for step in llm.trace for token in step.sampled}


def _steps_decoding(llm: Any) -> dict[str, int]:
    """Steps that ran each request."""
    counts: dict[str, int] = {}
    for step in llm.trace:
        for item in step.scheduled:
            counts[item.request_id] = counts.get(item.request_id, 0) + 1
    return counts


MISCONCEPTIONS = (
    Misconception(
        key="12.doubling-halves",
        belief="Doubling a server's tokens per second halves every user's wait.",
        wrong="This is wrong: it shortens the queue, and only for those who stood in it.",
        mechanism=(
            "A user's wait is the queue, then one step for each token of the answer. A larger "
            "batch serves more chains side by side and shortens none of them. So those who stood "
            "in the queue gain, by as much as it gets shorter before them, and those who never "
            "queued gain nothing. Where the shared step gets longer, they even pay."
        ),
        experiment=twice_the_tokens_a_step_is_not_half_the_wait,
    ),
)
