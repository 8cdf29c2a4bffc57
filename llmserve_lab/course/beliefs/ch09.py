"""Chapter 09: each strategy has work that it does nothing for, and drafts change no output."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

REQUESTS, PROMPT_TOKENS, TOKENS = 4, 40, 24
DRAFTS = 4


def each_strategy_finds_nothing_to_save() -> str:
    """Equal lengths, nothing shared, all at once: one batch that is always full."""
    from llmserve_lab.course import strategies as s

    prompts, params = _requests()
    runs = {
        name: s.serve_with(names, prompts, params, name, places=REQUESTS)
        for name, names in (("none", ()), *((n, (n,)) for n in (s.CONTINUOUS, s.REUSE)))
    }
    drafted = s.serve_with((s.SPECULATIVE,), prompts, params, "drafts", places=REQUESTS)
    none = runs["none"]
    assert {(run.steps, run.computed_tokens) for run in runs.values()} == {
        (none.steps, none.computed_tokens)
    }
    assert drafted.computed_tokens > none.computed_tokens
    assert drafted.texts == none.texts
    wasted = drafted.proposed_tokens - drafted.accepted_tokens
    assert wasted > 0
    return (
        f"{REQUESTS} requests of equal lengths with nothing in common: {none.steps} steps and "
        f"{none.computed_tokens} computed tokens without any strategy, and exactly as many with "
        f"continuous batching and with KV cache reuse. With drafts the model computed "
        f"{drafted.computed_tokens} tokens for the same answers; {wasted} drafts were thrown away."
    )


class AlwaysWrong:
    """The worst draft there is: it proposes the end of the text, which never comes here."""

    def propose(self, token_ids: Any, num_tokens: int) -> list[int]:
        return [0] * num_tokens


def drafts_change_no_token() -> str:
    from llmserve_lab import LLM, PromptLookup, load

    model = load("lab-target", "float32")
    prompts, params = _requests()
    drafts = {
        "none": None,
        "lab-draft": "lab-draft",
        "lookup": PromptLookup(),
        "always wrong": AlwaysWrong(),
    }
    texts, steps = {}, {}
    for name, draft in drafts.items():
        llm = LLM(model, draft=draft, num_blocks=64)
        outputs = llm.generate(prompts, params)
        texts[name] = [output.outputs[0].token_ids for output in outputs]
        steps[name] = llm.metrics.steps
    assert all(found == texts["none"] for found in texts.values())
    assert steps["lab-draft"] < steps["none"] == steps["always wrong"]
    tokens = sum(map(len, texts["none"]))
    return (
        f"All {tokens} tokens were the same four times: in {steps['none']} steps without drafts, "
        f"in {steps['lab-draft']} with a draft model, in {steps['lookup']} with drafts copied from "
        f"the text, and in {steps['always wrong']} with drafts that were all wrong."
    )


def _requests() -> tuple[list[Any], list[Any]]:
    from llmserve_lab import load
    from llmserve_lab.course.experiments import held_out_prompts
    from llmserve_lab.course.strategies import greedy_lengths

    tokenizer = load("lab-target", "float32").tokenizer
    prompts = held_out_prompts(tokenizer, REQUESTS, PROMPT_TOKENS, seed=5)
    return prompts, greedy_lengths([TOKENS] * REQUESTS)


MISCONCEPTIONS = (
    Misconception(
        key="09.all-faster",
        belief="Every optimisation makes everything faster, so switch them all on.",
        wrong="This is wrong: each one saves one thing, and where that is not spent it saves "
        "nothing.",
        mechanism=(
            "Continuous batching fills places that others leave; without such places it does "
            "nothing. Reuse saves prompt tokens that were seen before; without them, nothing. "
            "Quantization saves bytes and spends exactness. Drafts save passes and spend "
            "arithmetic: every wrong one was computed for nothing."
        ),
        experiment=each_strategy_finds_nothing_to_save,
    ),
    Misconception(
        key="09.drafts-change-output",
        belief="Speculative decoding changes the output: a small model writes part of the text.",
        wrong="This is wrong: the small model only guesses, and the large one decides every token.",
        mechanism=(
            "The large model computes its own distribution after each guess. A guess stays only "
            "where it is the token that the model would have chosen; with sampling it stays with "
            "the probability that leaves the model's distribution exactly as it is. A bad draft "
            "costs time, never quality."
        ),
        experiment=drafts_change_no_token,
    ),
)
