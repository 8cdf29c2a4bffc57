"""Chapter 16: what a KV cache saves, and what of it another request can use."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

SIZE = 16  # tokens in a block
SHARED, OWN = 96, 24  # tokens: six blocks that two prompts share, and what differs
ANSWER = 24
LENGTHS = (16, 64)
CLOSE = 1e-3  # of a log-probability; rounding in float32 stays far below


def most_of_it_is_linear_layers() -> str:
    from llmserve_lab import Scheduler, load
    from llmserve_lab.course.forgetful import ForgetfulScheduler
    from llmserve_lab.course.length_sweep import measure_lengths

    model = load("lab-target", dtype="float32")
    kept = measure_lengths(model, LENGTHS, Scheduler)[-1]
    again = measure_lengths(model, LENGTHS, ForgetfulScheduler)[-1]
    saved = again.flops - kept.flops
    attention = again.attention - kept.attention
    assert 0 < attention < 0.1 * saved
    return (
        f"For an answer of {kept.length} tokens the cache spared {saved:,} of {again.flops:,} "
        f"operations. Attention's were {attention:,} of those, {100 * attention / saved:.1f}%; the "
        f"others were products with weights, for {again.computed - kept.computed:,} tokens that "
        f"would have gone through the layers again."
    )


def a_shared_beginning_is_enough() -> str:
    llm, model = _engine()
    shared, first, second = _texts(model, (SHARED, OWN, OWN))
    cold, hit = (_serve(llm, shared + own) for own in (first, second))
    assert (cold.metrics.num_hit_tokens, hit.metrics.num_hit_tokens) == (0, SHARED)
    assert first[0] != second[0]
    return (
        f"Two prompts of {SHARED + OWN} tokens shared the first {SHARED} and differed from there. "
        f"The second found {hit.metrics.num_hit_tokens} tokens and computed {OWN}; no prompt like "
        f"it had been asked before."
    )


def the_same_text_elsewhere_is_not_the_same() -> str:
    from llmserve_lab.course.cached_rows import apart, cached_rows

    llm, model = _engine()
    document, first, second = _texts(model, (SHARED, SIZE, SIZE))
    _serve(llm, first + document + second[:1])
    hit = _serve(llm, second + document + first[:1])
    assert hit.metrics.num_hit_tokens == 0
    mine, theirs = (cached_rows(model, start + document)[-1] for start in (first, second))
    keys, values = (apart(a[SIZE:], b[SIZE:]) for a, b in zip(mine, theirs, strict=True))
    assert min(keys, values) > CLOSE
    return (
        f"The same document of {SHARED} tokens stood at the same place in two prompts, after "
        f"beginnings of {SIZE} tokens that differ: {hit.metrics.num_hit_tokens} tokens were found. "
        f"Rightly so: in the last layer its keys were {100 * keys:.0f}% apart and its values "
        f"{100 * values:.0f}%."
    )


def a_hit_changes_no_answer() -> str:
    llm, model = _engine()
    shared, first, second = _texts(model, (SHARED, OWN, OWN))
    _serve(llm, shared + first)
    hit = _serve(llm, shared + second)
    cold = _serve(_engine(caching=False)[0], shared + second)
    assert hit.metrics.num_hit_tokens == SHARED and cold.metrics.num_hit_tokens == 0
    mine, theirs = hit.outputs[0], cold.outputs[0]
    assert mine.token_ids == theirs.token_ids
    gap = max(
        abs(a[token].logprob - b[token].logprob)
        for token, a, b in zip(mine.token_ids, mine.logprobs, theirs.logprobs, strict=True)
    )
    assert gap < CLOSE
    return (
        f"One prompt of {SHARED + OWN} tokens, once with {SHARED} of them found in another "
        f"request's cache and once computed cold: all {ANSWER} greedy tokens were the same, and "
        + (
            f"no log-probability differed by more than {gap:.0e}."
            if gap
            else "so were their log-probabilities."
        )
    )


def _engine(caching: bool = True) -> tuple[Any, Any]:
    from llmserve_lab import LLM, load

    model = load("lab-target", dtype="float32")
    llm = LLM(model, block_size=SIZE, num_blocks=64, enable_prefix_caching=caching)
    return llm, model


def _texts(model: Any, lengths: tuple[int, ...]) -> list[list[int]]:
    """Token ids of held-out texts that begin differently, one of each length."""
    from llmserve_lab.course.experiments import held_out_prompts

    prompts = held_out_prompts(model.tokenizer, len(lengths), max(lengths), seed=5)
    return [p["prompt_token_ids"][:n] for p, n in zip(prompts, lengths, strict=True)]


def _serve(llm: Any, token_ids: list[int]) -> Any:
    from llmserve_lab import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=ANSWER, ignore_eos=True, logprobs=1)
    return llm.generate({"prompt_token_ids": token_ids}, params)[0]


MISCONCEPTIONS = (
    Misconception(
        key="16.mostly-attention",
        belief="What the KV cache spares is attention: that is why its work is called duplicate.",
        wrong="This is wrong for answers of usual length: attention is the small part of it.",
        mechanism=(
            "To compute a token again is to send it through every layer: projections and MLP, and "
            "its attention. The first two cost the same for each token, attention grows with the "
            "context and overtakes them only at very long ones. The cache spares all three."
        ),
        experiment=most_of_it_is_linear_layers,
    ),
    Misconception(
        key="16.whole-prompt",
        belief="A prefix cache helps only if the same whole prompt comes again.",
        wrong="This is wrong: a shared beginning is enough.",
        mechanism=(
            "Each block is found by a hash of its tokens and of all before it. So two prompts "
            "share every whole block up to the first token in which they differ, whatever follows."
        ),
        experiment=a_shared_beginning_is_enough,
    ),
    Misconception(
        key="16.same-text",
        belief="A document that is in the cache can be reused wherever it stands in a prompt.",
        wrong="This is wrong: its keys and values belong to one beginning.",
        mechanism=(
            "Keys are turned by their position, and from the second layer on keys and values are "
            "made of hidden states that have read what came before. After another beginning the "
            "same tokens have other numbers, and a correct cache must not find them."
        ),
        experiment=the_same_text_elsewhere_is_not_the_same,
    ),
    Misconception(
        key="16.reuse-changes",
        belief="With another request's cache the answer comes out a little different.",
        wrong="This is wrong: what is found is what would be computed.",
        mechanism=(
            "Keys and values follow from the model and the tokens so far, not from who asked. For "
            "the same beginning they are the same, up to rounding in the order of additions. The "
            "cache keeps no answers: what comes after the prompt is still chosen token by token."
        ),
        experiment=a_hit_changes_no_answer,
    ),
)
