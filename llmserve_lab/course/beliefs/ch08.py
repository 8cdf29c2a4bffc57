"""Chapter 08: a larger batch is not always better, and a smaller one does not always wait less."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

REQUESTS, PROMPT_TOKENS, TOKENS = 24, 64, 32
BLOCKS, STEP_TOKENS = 24, 64  # of the KV cache; in a step at most
FITTING = BLOCKS // 6  # requests: each comes to hold 6 blocks of 16 tokens
USERS, SEED = 120, 3
SMALL, LARGE = 8, 32  # limits on the batch
LOAD = 0.8  # of what the large limit can do
PATIENCE = 1.0  # seconds until the first token


def larger_batches_do_work_twice() -> str:
    from llmserve_lab import LLM, SamplingParams, load
    from llmserve_lab.course.experiments import held_out_prompts

    model = load("lab-target")
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    prompts = held_out_prompts(model.tokenizer, REQUESTS, PROMPT_TOKENS)
    metrics = []
    for limit in (FITTING, REQUESTS):
        llm = LLM(
            model, max_num_seqs=limit, num_blocks=BLOCKS, max_num_batched_tokens=STEP_TOKENS
        )  # fmt: skip
        llm.generate(prompts, params)
        metrics.append(llm.metrics)
    small, large = metrics
    assert small.preemptions == 0 < large.preemptions
    assert small.generation_tokens == large.generation_tokens == REQUESTS * TOKENS
    assert large.computed_tokens > small.computed_tokens and large.steps >= small.steps
    return (
        f"{REQUESTS} requests on {BLOCKS} KV blocks. With a limit of {FITTING} they took "
        f"{small.steps} steps and {small.computed_tokens:,} computed tokens; with a limit of "
        f"{REQUESTS}, {large.steps} steps and {large.computed_tokens:,}: {large.preemptions} times "
        f"a request gave up its blocks and was computed again, for not one step less."
    )


def small_batches_wait_longer() -> str:
    small, large = (_simulated(limit) for limit in (SMALL, LARGE))
    late_small, late_large = (
        sum(m.ttft > PATIENCE for m in result.finished) for result in (small, large)
    )
    faster = small.percentile("tpot", 50) < large.percentile("tpot", 50)
    longer = small.percentile("e2e", 50) > large.percentile("e2e", 50)
    assert faster and longer and small.num_steps > large.num_steps
    assert late_small > USERS // 2 > late_large
    return (
        f"{USERS} requests to a simulated A100 with a 7B model. At a limit of {SMALL} a token took "
        f"{1000 * small.percentile('tpot', 50):.1f} ms, at {LARGE} "
        f"{1000 * large.percentile('tpot', 50):.1f} ms. But {late_small} requests waited more than "
        f"{PATIENCE:g} s for the first one, not {late_large}, and the median answer took "
        f"{small.percentile('e2e', 50):.1f} s in place of {large.percentile('e2e', 50):.1f} s."
    )


def _simulated(limit: int) -> Any:
    """The same random arrivals, at most `limit` in a step, on a clock set by the data sheet."""
    from llmserve_lab import simulate
    from llmserve_lab.simulate import LogNormal, Simulator, Workload

    machine = simulate.Deployment(simulate.ModelSize.llama2_7b(), simulate.GPUS["A100"])
    lengths = LogNormal(256, 0.8, 16, 1500), LogNormal(96, 0.7, 8, 400)
    at_once = Workload.draw(USERS, *lengths, seed=SEED)
    most = Simulator(machine, max_num_seqs=LARGE).run(at_once).request_throughput
    workload = Workload.draw(USERS, *lengths, simulate.Poisson(LOAD * most), seed=SEED)
    return Simulator(machine, max_num_seqs=limit).run(workload)


MISCONCEPTIONS = (
    Misconception(
        key="08.larger-is-better",
        belief="A larger batch is always better: the GPU is used best when it is full.",
        wrong="This is wrong: beyond the knee it buys little, and beyond the memory it costs work.",
        mechanism=(
            "A larger batch shares the fixed part of a step among more requests. Once that part is "
            "small, each further request makes the step longer for everyone and adds almost no "
            "throughput. And each holds KV blocks: when they run out, someone's work is thrown "
            "away and done again."
        ),
        experiment=larger_batches_do_work_twice,
    ),
    Misconception(
        key="08.smaller-is-faster",
        belief="A smaller limit on the batch always lowers latency: the steps are shorter.",
        wrong="This is wrong under load: what a step saves, the queue takes back many times over.",
        mechanism=(
            "A smaller limit lowers the tokens per second of the whole server. If more is asked "
            "for than that, requests wait for a place. Time per token falls, time to first token "
            "grows with every arrival, and the whole answer comes later."
        ),
        experiment=small_batches_wait_longer,
    ),
)
