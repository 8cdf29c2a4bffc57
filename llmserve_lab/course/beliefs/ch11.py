"""Chapter 11: the document's five misconceptions, each from another side than in its chapter."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

LONG, SHORT = 32, 4  # output tokens
LENGTHS = (LONG, LONG, *[SHORT] * 6)  # in order of arrival
PLACES = 16  # tokens that are guessed together
ANSWER = 16
PROMPTS = 48, 112  # with the answer: 4 and 8 blocks
REQUESTS, POOL = 4, 16
ANSWERS = 1, 8, 32
TIGHT, FITTING, TOO_MANY = 12, 3, 4  # KV blocks; limits on the batch
PROMISE = 0.1  # s for each token after the first
LIMITS = 4, 12, 64


def twice_the_throughput_and_a_longer_wait() -> str:
    from llmserve_lab import load
    from llmserve_lab.course.experiments import held_out_prompts
    from llmserve_lab.course.serving_order import serve_at_once

    model = load("lab-target")
    prompts = held_out_prompts(model.tokenizer, len(LENGTHS), 8)
    wide = serve_at_once(model, prompts, LENGTHS, slots=2)
    short = serve_at_once(model, prompts, LENGTHS, slots=1, shortest_first=True)
    assert wide.tokens == short.tokens and short.steps == 2 * wide.steps
    assert wide.median_wait > 2 * short.median_wait
    return (
        f"The same {len(LENGTHS)} requests. Two at a time in order of arrival: "
        f"{wide.tokens_per_step:.0f} tokens a step, and half of the requests were done after "
        f"{wide.median_wait:.0f} steps. One at a time, the shortest first: "
        f"{short.tokens_per_step:.0f} token a step, and half were done after "
        f"{short.median_wait:.0f}."
    )


def all_places_side_by_side() -> str:
    from llmserve_lab import LLM, load
    from llmserve_lab.course.experiments import held_out_prompts
    from llmserve_lab.course.jacobi import jacobi_passes, right_so_far

    model = load("lab-target", dtype="float32")
    (prompt,) = held_out_prompts(model.tokenizer, 1, PROMPTS[0], seed=2)
    ids = prompt["prompt_token_ids"]
    passes = jacobi_passes(model, ids, [ids[-1]] * PLACES)
    (output,) = LLM(model).generate(prompt, _greedy(PLACES))
    assert passes[-1] == list(output.outputs[0].token_ids)
    assert all(right > done for done, right in enumerate(right_so_far(passes[:PLACES])))
    assert PLACES // 2 < len(passes) <= PLACES + 1
    return (
        f"{PLACES} places were guessed and computed together, again and again, until nothing "
        f"changed: {len(passes)} passes, {PLACES * len(passes)} places, and the very tokens that "
        f"{PLACES} decode steps give. Each pass could only rely on what the pass before had set "
        f"right."
    )


def twice_the_context_half_the_requests() -> str:
    from llmserve_lab import LLM, load
    from llmserve_lab.course.experiments import held_out_prompts

    model = load("lab-target")
    held, together = [], []
    for length in PROMPTS:
        prompts = held_out_prompts(model.tokenizer, REQUESTS, length)
        roomy, tight = (LLM(model, num_blocks=count) for count in (2 * POOL, POOL))
        for llm in (roomy, tight):
            llm.generate(prompts, _greedy(ANSWER))
        held.append(roomy.metrics.peak_kv_blocks_used)
        together.append(tight.metrics.max_batch_size)
    assert held == [POOL, 2 * POOL] and together == [REQUESTS, REQUESTS // 2]
    return (
        f"{REQUESTS} requests of {PROMPTS[0] + ANSWER} tokens came to hold {held[0]} blocks; of "
        f"{PROMPTS[1] + ANSWER} tokens, {held[1]}. With {POOL} blocks in the pool {together[0]} of "
        f"the short ones ran together, and {together[1]} of the long ones."
    )


def one_token_needs_no_cache() -> str:
    from llmserve_lab import Scheduler, load
    from llmserve_lab.course.forgetful import ForgetfulScheduler

    model, length = load("lab-target"), PROMPTS[0]
    told = []
    for count in ANSWERS:
        without = _computed(model, ForgetfulScheduler(), length, count)
        kept = _computed(model, Scheduler(), length, count)
        assert without == sum(range(length, length + count)) and kept == length + count - 1
        told.append(f"{without:,} against {kept} for {count}")
    return (
        f"Tokens computed after a prompt of {length}, without a cache against with one, by the "
        f"length of the answer: {'; '.join(told)}. For one token the cache saved nothing, and it "
        f"saves more the longer the answer is."
    )


def beyond_memory_and_beyond_the_promise() -> str:
    from llmserve_lab.course.gpu_service import serve_on_gpu
    from llmserve_lab.simulate import SLO

    steps, computed, sent_back = zip(*(_tight(limit) for limit in (FITTING, TOO_MANY)), strict=True)
    assert sent_back[0] == 0 < sent_back[1]
    assert steps[1] >= steps[0] and computed[1] > computed[0]
    runs = [serve_on_gpu(limit) for limit in LIMITS]
    done = [run.request_throughput for run in runs]
    good = [run.goodput(SLO(tpot=PROMISE)) for run in runs]
    assert done == sorted(done) and max(good) == good[1]
    return (
        f"{TIGHT} KV blocks, limit {FITTING}: {steps[0]} steps and {computed[0]} tokens computed. "
        f"Limit {TOO_MANY}: {steps[1]} steps and {computed[1]} tokens, as {sent_back[1]} times a "
        f"request was sent back. Simulated, a 7B model on an L4: limits {LIMITS[0]}, {LIMITS[1]} "
        f"and {LIMITS[2]} gave {done[0]:.2f}, {done[1]:.2f} and {done[2]:.2f} requests/s, but "
        f"{good[0]:.2f}, {good[1]:.2f} and {good[2]:.2f} with at most {1000 * PROMISE:.0f} ms a "
        f"token."
    )


def _computed(model: Any, scheduler: Any, length: int, count: int) -> int:
    """Tokens that the model computed for an answer of `count`."""
    from llmserve_lab import LLM
    from llmserve_lab.course.experiments import held_out_prompts

    llm = LLM(model, scheduler=scheduler)
    llm.generate(held_out_prompts(model.tokenizer, 1, length), _greedy(count))
    return llm.metrics.computed_tokens


def _tight(limit: int) -> tuple[int, int, int]:
    """Steps, tokens computed and preemptions of 12 requests of 4 blocks each."""
    from llmserve_lab import LLM, load
    from llmserve_lab.course.experiments import held_out_prompts

    model = load("lab-target")
    llm = LLM(model, max_num_seqs=limit, num_blocks=TIGHT)
    llm.generate(held_out_prompts(model.tokenizer, TIGHT, 24), _greedy(40))
    return llm.metrics.steps, llm.metrics.computed_tokens, llm.metrics.preemptions


def _greedy(tokens: int) -> Any:
    from llmserve_lab import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)


MISCONCEPTIONS = (
    Misconception(
        key="11.latency",
        belief="When throughput is high, latency is always low.",
        wrong="This is wrong: throughput adds up what is done, latency is when each one is done.",
        mechanism=(
            "The same work can be shared out in many ways. Which requests go first, how many share "
            "a step and how long a step may get change each one's wait, and may raise or lower the "
            "sum. True is this much: where requests queue, more throughput shortens the queue."
        ),
        experiment=twice_the_throughput_and_a_longer_wait,
    ),
    Misconception(
        key="11.parallel",
        belief="The decode stage can be made fully parallel.",
        wrong="This is wrong: computing all places at once gives wrong tokens until those before "
        "them are right.",
        mechanism=(
            "A token is p(x_t | x_<t): it depends on the one before, which depends on the one "
            "before that. Places can be computed side by side for guesses, and guesses that were "
            "right save passes. But the chain decides how many passes it takes. True is this much: "
            "what is given already, a prompt, a guess or other requests, is computed side by side."
        ),
        experiment=all_places_side_by_side,
    ),
    Misconception(
        key="11.context",
        belief="The context's length has no effect on memory.",
        wrong="This is wrong: keys and values are kept for every token of it, in every layer.",
        mechanism=(
            "A block holds a fixed number of tokens, so twice the context takes twice the blocks, "
            "and a pool holds half as many requests. True is this much: the weights do not grow, "
            "and beside large weights a short context is little. (A window or a recurrent state "
            "bounds what is kept; models are built so for that reason.)"
        ),
        experiment=twice_the_context_half_the_requests,
    ),
    Misconception(
        key="11.optional",
        belief="The KV cache is optional: a server may do without it.",
        wrong="This is wrong for all that takes more than one pass: each would compute all again.",
        mechanism=(
            "A step without it computes all tokens so far again: n, n + 1, n + 2 and so on. With "
            "it, n once and then 1 a step. True is this much: what ends after one pass needs no "
            "cache. A class told by one token, an embedding or the score of a given text is that."
        ),
        experiment=one_token_needs_no_cache,
    ),
    Misconception(
        key="11.batch",
        belief="A larger batch is always better.",
        wrong="This is wrong: memory and the promised pace both end what it can gain.",
        mechanism=(
            "Requests that no longer fit in the KV cache are sent back and computed again. And "
            "a step that carries more lasts longer, for everyone in it: past the promised time per "
            "token it makes answers that come too slowly. True is this much: up to there, one "
            "reading of the weights serves more requests."
        ),
        experiment=beyond_memory_and_beyond_the_promise,
    ),
)
