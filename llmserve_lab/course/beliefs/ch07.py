"""Chapter 07: a KV cache saves recomputing, not attention, and it does not approximate."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

PROMPT, TOKENS = 48, 32
SHORT, LONG = 64, 512  # tokens
CLOSE = 1e-3  # of a logit; rounding in float32 stays far below


def attention_grows_with_the_context() -> str:
    from llmserve_lab import load
    from llmserve_lab.course.counted import counted_flops

    model = load("lab-target", dtype="float32")
    short, long = (counted_flops(model, 1, length - 1) for length in (SHORT, LONG))
    again = counted_flops(model, LONG)
    assert long["attention"] * SHORT == short["attention"] * LONG
    assert long["linear"] == short["linear"] < again["linear"] / 100
    return (
        f"With the cache, attention took {short['attention']:,} operations for token {SHORT} and "
        f"{long['attention']:,} for token {LONG}: {LONG // SHORT} times as many for "
        f"{LONG // SHORT} times the length. Products with the weights stayed at "
        f"{long['linear']:,}; without the cache they would take {again['linear']:,}."
    )


def the_same_numbers_come_out() -> str:
    import torch

    from llmserve_lab import load
    from llmserve_lab.course.past import with_past

    model = load("lab-target", dtype="float32")
    plain, cached = _served(model)
    assert plain["tokens"] == cached["tokens"]
    ids = torch.tensor([plain["prompt"] + plain["tokens"]], device=model.model.device)
    with torch.inference_mode():
        whole = model.model(ids, use_cache=False).logits[0, -1]
    last, _ = with_past(model.model, ids[:, -1:], with_past(model.model, ids[:, :-1])[1])
    apart = float((whole - last).abs().max())
    assert apart < CLOSE and int(whole.argmax()) == int(last.argmax())
    return (
        f"The engine computed {plain['computed']:,} tokens without a cache and "
        f"{cached['computed']:,} with one; all {TOKENS} greedy tokens were the same. Of the "
        f"{len(whole):,} logits after the last one none differed by more than {apart:.1e}, while "
        f"they spread over {float(whole.max() - whole.min()):.0f}: that is rounding."
    )


def without_it_work_grows_with_the_square() -> str:
    from llmserve_lab import load

    model = load("lab-target", dtype="float32")
    plain, cached = _served(model)
    assert cached["computed"] == PROMPT + TOKENS - 1
    assert plain["computed"] == sum(range(PROMPT, PROMPT + TOKENS))
    assert plain["steps"] == cached["steps"] == TOKENS
    return (
        f"For {TOKENS} tokens after a prompt of {PROMPT} the engine computed "
        f"{cached['computed']} tokens with the cache and {plain['computed']:,} without, in "
        f"{TOKENS} steps each: {plain['computed'] / cached['computed']:.0f} times the work for "
        f"the same answer, and more with every token."
    )


def _served(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same request without and with a KV cache."""
    from llmserve_lab import LLM, SamplingParams, Scheduler
    from llmserve_lab.course.experiments import held_out_prompts
    from llmserve_lab.course.forgetful import ForgetfulScheduler

    (prompt,) = held_out_prompts(model.tokenizer, count=1, num_tokens=PROMPT)
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    results = []
    for scheduler in (ForgetfulScheduler(), Scheduler()):
        llm = LLM(model, scheduler=scheduler)
        tokens = llm.generate(prompt, params)[0].outputs[0].token_ids
        counts = {"computed": llm.metrics.computed_tokens, "steps": llm.metrics.steps}
        results.append({"prompt": prompt["prompt_token_ids"], "tokens": list(tokens), **counts})
    return results[0], results[1]


MISCONCEPTIONS = (
    Misconception(
        key="07.constant-attention",
        belief="With a KV cache, attention costs the same for every token: O(1).",
        wrong="This is wrong: the cache saves recomputing keys and values, not reading them.",
        mechanism=(
            "A new token's query still meets the keys of all tokens before it: one product for "
            "each, and one more to mix the values. Its attention is O(t) at position t. What falls "
            "from O(t) to O(1) is the rest: projections and MLP run for the new token alone."
        ),
        experiment=attention_grows_with_the_context,
    ),
    Misconception(
        key="07.approximate",
        belief="A KV cache changes the output a little: it is an approximation.",
        wrong="This is wrong: the cache holds the very numbers that would be computed again.",
        mechanism=(
            "Attention is causal: a token's keys and values depend on the tokens before it, which "
            "do not change. So keeping them is exact. Only the order of additions differs, by "
            "rounding. (A cache in int8 or int4 does approximate; that is a choice of its own.)"
        ),
        experiment=the_same_numbers_come_out,
    ),
    Misconception(
        key="07.optional",
        belief="The KV cache is optional: it makes decoding somewhat faster.",
        wrong="This is wrong: without it an answer's work grows with the square of its length.",
        mechanism=(
            "Without kept keys and values, each step has to compute all tokens so far to get the "
            "next one: n + (n + 1) + (n + 2) and so on, in place of one token a step. A short "
            "answer hides it; a long one becomes impossible to serve."
        ),
        experiment=without_it_work_grows_with_the_square,
    ),
)
