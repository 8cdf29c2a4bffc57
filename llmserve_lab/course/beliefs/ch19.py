"""Chapter 19: continuous batching has losers too, and sorting does not make static batches full."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

PLACES, LATER = 4, 8  # requests in a step; requests that come behind the first batch
PROMPT_TOKENS, SHORT, LONG = 96, 4, 32  # of a prompt, of answers
USERS, RATE, SEED = 80, 1.0, 3  # RATE: requests per second to the GPU
GPU_PLACES = 8
SORTED, WIDEST, BATCH = 24, 23, 6  # requests, tokens of the longest answer, places
PER_STEP = 0.4  # of those that come over time


def those_who_run_pay_for_newcomers() -> str:
    from llmserve_lab import StaticBatchingScheduler, load
    from llmserve_lab.course.step_run import serve_in_steps
    from llmserve_lab.simulate import Ask, Workload

    answers = [LONG, *[SHORT] * (PLACES - 1 + LATER)]
    workload = Workload(tuple(Ask(0.0, PROMPT_TOKENS, tokens) for tokens in answers))
    model = load("lab-draft")  # steps do not depend on the model
    static = serve_in_steps(model, workload, StaticBatchingScheduler(PLACES), PLACES)
    continuous = serve_in_steps(model, workload, None, PLACES)
    assert static.lives[0].ended == continuous.lives[0].ended == LONG
    alone, beside = (
        sum(step.num_tokens for step in run.trace.steps[:LONG]) for run in (static, continuous)
    )
    assert beside >= alone + LATER * PROMPT_TOKENS
    later, count = _later_on_a_gpu()
    return (
        f"The first of {len(answers)} requests took {LONG} steps either way. With static batching "
        f"{alone} tokens ran in them, with continuous batching {beside}: the prompts of those who "
        f"joined too. On a simulated A100, {later} of {count} users got their answer later than "
        f"with static batching, and {count - later} earlier."
    )


def _later_on_a_gpu() -> tuple[int, int]:
    """Users whose answer is later with continuous batching, of how many."""
    from llmserve_lab import StaticBatchingScheduler, simulate
    from llmserve_lab.simulate import LogNormal, Simulator, Workload

    gpu = simulate.Deployment(simulate.ModelSize.llama2_7b(), simulate.GPUS["A100"])
    lengths = LogNormal(256, 0.8, 16, 1500), LogNormal(96, 0.7, 8, 400)
    workload = Workload.draw(USERS, *lengths, simulate.Poisson(RATE), seed=SEED)
    answered = []
    for scheduler in (StaticBatchingScheduler(GPU_PLACES), None):
        result = Simulator(gpu, scheduler=scheduler, max_num_seqs=GPU_PLACES).run(workload)
        answered.append({o.request_id: o.metrics.e2e or 0.0 for o in result.outcomes})
    before, after = answered
    later = sum(after[name] > before[name] for name in before)
    assert 0 < later < USERS / 2
    return later, USERS


def sorted_batches_are_not_full() -> str:
    from llmserve_lab import StaticBatchingScheduler, load
    from llmserve_lab.course.step_run import arrive_in_steps, serve_in_steps
    from llmserve_lab.simulate import Constant, Uniform, Workload

    lengths = Constant(16), Uniform(1, WIDEST)
    drawn = Workload.draw(SORTED, *lengths, seed=SEED)
    in_order = Workload(tuple(sorted(drawn.asks, key=lambda ask: ask.output_tokens)))
    coming = arrive_in_steps(SORTED, *lengths, rate=PER_STEP, seed=SEED)
    model = load("lab-draft")  # steps do not depend on the model
    mixed = serve_in_steps(model, drawn, StaticBatchingScheduler(BATCH), BATCH)
    by_length = serve_in_steps(model, in_order, StaticBatchingScheduler(BATCH), BATCH)
    live = serve_in_steps(model, coming, _by_length(BATCH), BATCH)
    continuous = serve_in_steps(model, coming, None, BATCH)
    assert mixed.wasted > by_length.wasted > 0
    assert live.wasted > by_length.wasted and continuous.wasted == 0
    return (
        f"{SORTED} requests on {BATCH} places, all there from the start: {mixed.wasted} times a "
        f"place was empty in a step while somebody waited, {by_length.wasted} times with the "
        f"lengths known and sorted. When they come over time, only those who wait can be sorted: "
        f"{live.wasted} times, and {continuous.wasted} with continuous batching."
    )


def _by_length(batch_size: int) -> Any:
    """Static batches of those who wait, the shortest answers first."""
    from llmserve_lab import StaticBatchingScheduler

    class ByLength(StaticBatchingScheduler):
        def _collect(self) -> None:
            ordered = sorted(self.waiting, key=lambda request: request.params.max_tokens)
            self.waiting.clear()
            self.waiting.extend(ordered)
            super()._collect()

    return ByLength(batch_size)


MISCONCEPTIONS = (
    Misconception(
        key="19.lower-for-all",
        belief="Continuous batching lowers the latency of every request.",
        wrong="This is wrong: it lowers most waits, and slows down those who run already.",
        mechanism=(
            "A static batch keeps its steps for itself: whoever is in it decodes among ever fewer "
            "neighbours. With continuous batching each place is given away at once, so its steps "
            "stay full, and hold the prompts of those who join. Who waited gains, and who was "
            "early pays a part of it."
        ),
        experiment=those_who_run_pay_for_newcomers,
    ),
    Misconception(
        key="19.sorted",
        belief="Static batching wastes nothing if the requests are sorted by length.",
        wrong="This is wrong: neighbours in order differ too, and the order is not known in time.",
        mechanism=(
            "Sorting makes the answers of a batch similar, not equal, and each batch still lasts "
            "as long as its longest. It needs every length beforehand, which a server does not "
            "know, and everybody there: of users who come over time only those who wait can be "
            "sorted, and nobody can enter a batch that is under way."
        ),
        experiment=sorted_batches_are_not_full,
    ),
)
