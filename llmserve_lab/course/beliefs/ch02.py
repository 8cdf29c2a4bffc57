"""Chapter 02: what a mean hides, and what TPOT leaves out. Latencies are counted in steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmserve_lab.course.misconceptions import Misconception

PROMPT = "def parse(text):"
SHORT, LONG = 4, 96  # output tokens
NUM_SHORT, NUM_LONG = 18, 2
LONG_PROMPT, CHUNK, FEW = 200, 32, 5  # tokens


def nobody_waits_the_average() -> str:
    lengths = [SHORT] * NUM_SHORT + [LONG] * NUM_LONG
    latencies = _latencies_in_steps([PROMPT] * len(lengths), lengths)
    mean = sum(latencies) / len(latencies)
    near = sum(mean / 2 <= latency <= mean * 2 for latency in latencies)
    assert near == 0, latencies
    faster = sum(latency < mean for latency in latencies)
    assert faster == NUM_SHORT
    slowest = max(latencies)
    return (
        f"{len(latencies)} requests that start together take {mean:.1f} steps of the engine on "
        f"average. {faster} of them were done after {min(latencies)} steps and {NUM_LONG} after "
        f"{slowest}; {near} took between half and twice the average. The median is "
        f"{sorted(latencies)[len(latencies) // 2]}, the 95th percentile {slowest}."
    )


def first_token_is_not_in_the_pace() -> str:
    prompt = {"prompt_token_ids": list(range(5, 5 + LONG_PROMPT))}
    (steps,) = _token_steps([prompt], [FEW], max_num_batched_tokens=CHUNK)
    latency = steps[-1] + 1  # steps are counted from 0
    first = steps[0] + 1
    pace = (steps[-1] - steps[0]) / (FEW - 1)
    assert first == -(-LONG_PROMPT // CHUNK)
    assert pace == 1.0
    assert latency / FEW > 2 * pace
    return (
        f"A prompt of {LONG_PROMPT} tokens, {CHUNK} a step: the first token came after {first} "
        f"steps, the other {FEW - 1} after one step each. TPOT is {pace:.0f} step; latency divided "
        f"by {FEW} tokens gives {latency / FEW:.1f} steps, at which no token ever came."
    )


def _latencies_in_steps(prompts: Sequence[Any], lengths: Sequence[int]) -> list[int]:
    """Steps from the start to each request's last token."""
    return [steps[-1] + 1 for steps in _token_steps(prompts, lengths)]


def _token_steps(
    prompts: Sequence[Any], lengths: Sequence[int], **settings: Any
) -> list[list[int]]:
    """For each request the numbers of the steps in which its tokens came."""
    from llmserve_lab import LLM, SamplingParams

    llm = LLM("lab-target", trace=True, **settings)
    params = [SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for n in lengths]
    outputs = llm.generate(list(prompts), params)
    assert [len(o.outputs[0].token_ids) for o in outputs] == list(lengths)
    came: dict[str, list[int]] = {output.request_id: [] for output in outputs}
    for step in llm.trace:
        for token in step.sampled:
            came[token.request_id].append(step.step)
    return list(came.values())


MISCONCEPTIONS = (
    Misconception(
        key="02.average-is-felt",
        belief="The average latency tells what users feel.",
        wrong="This is wrong: each user feels one request, and hardly any request is the average.",
        mechanism=(
            "Latencies have a floor and no ceiling: most answers are short, a few are long or "
            "queue. Those few raise the mean above what most users see, and it is still far below "
            "what they see themselves. Percentiles name a share of users; the mean names none."
        ),
        experiment=nobody_waits_the_average,
    ),
    Misconception(
        key="02.tpot-has-the-first",
        belief="TPOT is the latency divided by the number of tokens.",
        wrong="This is wrong: TPOT begins after the first token, and so divides by one gap less.",
        mechanism=(
            "The first token waits for the queue and the whole prompt; each other one for one more "
            "decode step. Mixed into one number, a long prompt looks like slow generation. vLLM's "
            "benchmark, and this engine, leave the first token out. A few tools do not (GuideLLM "
            "counts it in), so read a tool's definition before you compare two."
        ),
        experiment=first_token_is_not_in_the_pace,
    ),
)
