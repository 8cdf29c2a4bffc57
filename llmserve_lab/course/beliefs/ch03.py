"""Chapter 03: a prompt is read in one pass, and attention is not always most of it."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

PROMPT_TOKENS = 64
SHORT, LONG = 64, 2048  # tokens: below and above lab-target's crossover
ONE_BY_ONE, AT_ONCE = 1, 2048  # tokens that a step may hold


def a_prompt_takes_one_step() -> str:
    from llmserve_lab import load

    model = load("lab-target", dtype="float32")  # in 16 bits two near tokens may swap
    at_once, tokens = _read(model, AT_ONCE)
    one_by_one, same_tokens = _read(model, ONE_BY_ONE)
    assert (at_once.steps, one_by_one.steps) == (1, PROMPT_TOKENS)
    assert at_once.flops == one_by_one.flops and tokens == same_tokens
    assert one_by_one.num_bytes > PROMPT_TOKENS / 2 * at_once.num_bytes
    return (
        f"A prompt of {PROMPT_TOKENS} tokens took {at_once.steps} step. Made to read it token by "
        f"token, the engine took {one_by_one.steps} steps, with the same "
        f"{at_once.flops / 1e6:.0f} million operations and the same next token. What grew were the "
        f"bytes moved, {one_by_one.num_bytes / at_once.num_bytes:.0f} times, and on this machine "
        f"the time, {one_by_one.seconds / at_once.seconds:.0f} times."
    )


def short_prompts_are_mostly_linear_layers() -> str:
    from llmserve_lab import load
    from llmserve_lab.course.counted import counted_flops

    model = load("lab-target")
    short, long = (_attention_share(counted_flops(model, n)) for n in (SHORT, LONG))
    assert short < 0.5 < long
    return (
        f"torch counted the operations of lab-target's prefill: attention's part is {short:.0%} at "
        f"{SHORT} tokens and {long:.0%} at {LONG}. The rest is linear layers."
    )


def _read(model: Any, budget: int) -> tuple[Any, Any]:
    """The metrics of reading one prompt, and the token that follows it."""
    from llmserve_lab import LLM, SamplingParams
    from llmserve_lab.course.experiments import held_out_prompts

    llm = LLM(model, max_num_batched_tokens=budget)
    params = SamplingParams(temperature=0.0, max_tokens=1)
    llm.generate("import os", params)  # warm up
    llm.reset_metrics()
    (prompt,) = held_out_prompts(model.tokenizer, count=1, num_tokens=PROMPT_TOKENS)
    (output,) = llm.generate(prompt, params)
    return llm.metrics, output.outputs[0].token_ids


def _attention_share(counted: dict[str, int]) -> float:
    return counted["attention"] / (counted["attention"] + counted["linear"])


MISCONCEPTIONS = (
    Misconception(
        key="03.prefill-is-sequential",
        belief="Prefill is slow because it reads the prompt one token after another.",
        wrong="This is wrong: all tokens of a prompt go through a layer together.",
        mechanism=(
            "A token needs what the layer below made of earlier tokens, not what this layer makes "
            "of them. So a layer computes all rows at once, as one matrix product. A long prompt "
            "is slow because it is much work, not because its tokens wait for each other."
        ),
        experiment=a_prompt_takes_one_step,
    ),
    Misconception(
        key="03.attention-dominates",
        belief="Attention is quadratic, so attention is what a prefill spends its time on.",
        wrong="This is wrong for most prompts: below the crossover the linear layers are more.",
        mechanism=(
            "Quadratic says how a cost grows, not how large it is. Each token passes every weight "
            "of the linear layers once, however short the prompt. Attention's n x n part starts "
            "far below that, and overtakes at a length of about six times the model's width."
        ),
        experiment=short_prompts_are_mostly_linear_layers,
    ),
)
