"""Chapter 18: paging leaves some waste, makes no attention faster, and wants no blocks of 1."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

BLOCK_SIZE, SLOTS = 16, 2048
REQUESTS, SEED = 24, 4
PROMPTS, OUTPUTS = (40, 160), (4, 24)  # tokens, from .. to
CONTEXT = 256  # tokens that one query attends to


def last_blocks_stay_half_empty() -> str:
    from llmserve_lab import KVUse

    llm = _served(_workload(), BLOCK_SIZE)
    steps = llm.trace.steps
    use = KVUse.of(steps)
    holding = [view for step in steps for view in (*step.running, *step.finished)]
    lengths = [view.num_computed_tokens for view in holding if view.block_table]
    least = KVUse.least(lengths, BLOCK_SIZE)
    assert use.waste > 0 and use == least
    assert all(
        len(view.block_table) * BLOCK_SIZE - view.num_computed_tokens < BLOCK_SIZE
        for view in holding
        if view.block_table
    )
    empty = (use.held - use.used) / len(lengths)
    return (
        f"{REQUESTS} requests in blocks of {BLOCK_SIZE}: {use.waste:.1%} of the slots that they "
        f"held had no token, {empty:.1f} for each request on average, and never more than "
        f"{BLOCK_SIZE - 1}: all in last blocks. (Half a block less half a slot is "
        f"{(BLOCK_SIZE - 1) / 2}.)"
    )


def attention_does_the_same_work_and_looks_up_more() -> str:
    import torch

    from llmserve_lab import LLM, ReservingScheduler, Scheduler, load
    from llmserve_lab.course.allocations import allocations
    from llmserve_lab.kv_cache import slots_of

    model = load("lab-target", dtype="float32")
    cache = LLM(model, num_blocks=2 * CONTEXT // BLOCK_SIZE).kv_cache
    table = list(range(2 * CONTEXT // BLOCK_SIZE))[::-2]  # every second block, backwards
    slots = torch.tensor(slots_of(table, 0, CONTEXT, BLOCK_SIZE), device=model.model.device)
    flops, copied = [], []
    for where in (slice(0, CONTEXT), slots):
        with allocations() as seen:
            parts = cache.read(0, where)
        copied.append(seen.kept)
        flops.append(_attention_flops(*parts))
    assert flops[0] == flops[1] and copied[0] == 0 < copied[1]
    alone = _workload(count=1)
    steps = [
        _served(alone, BLOCK_SIZE, kind()).metrics.steps for kind in (ReservingScheduler, Scheduler)
    ]
    assert steps[0] == steps[1]
    return (
        f"Attention of one query over {CONTEXT} tokens took {flops[0]:,} operations in one piece "
        f"and {flops[1]:,} through a table. In one piece it read in place; through the table it "
        f"looked up {len(table)} blocks and copied {copied[1]:,} bytes. A request served alone "
        f"took {steps[0]} steps with a reservation and {steps[1]} with pages."
    )


def blocks_of_one_token_win_little_and_cost_much() -> str:
    from llmserve_lab import KVUse

    runs = {size: _served(_workload(), size) for size in (1, BLOCK_SIZE)}
    batch = {size: llm.metrics.mean_batch_size for size, llm in runs.items()}
    waste = {size: KVUse.of(llm.trace.steps).waste for size, llm in runs.items()}
    taken = {size: llm.pool.num_taken for size, llm in runs.items()}
    hashed = {size: llm.pool.num_hashed for size, llm in runs.items()}
    assert waste[1] == 0 < waste[BLOCK_SIZE]
    assert batch[1] < 1.5 * batch[BLOCK_SIZE]
    assert taken[1] > 8 * taken[BLOCK_SIZE] and hashed[1] > 8 * hashed[BLOCK_SIZE]
    return (
        f"The same {REQUESTS} requests on {SLOTS} slots. Blocks of 1 token wasted nothing, blocks "
        f"of {BLOCK_SIZE} {waste[BLOCK_SIZE]:.1%}; {batch[1]:.1f} requests against "
        f"{batch[BLOCK_SIZE]:.1f} ran at a time. For that, {taken[1]:,} blocks were handed out in "
        f"place of {taken[BLOCK_SIZE]:,} and {hashed[1]:,} hashed in place of "
        f"{hashed[BLOCK_SIZE]:,}, and every table was {BLOCK_SIZE} times as long."
    )


def _workload(count: int = REQUESTS) -> Any:
    from llmserve_lab.simulate import Uniform, Workload

    return Workload.draw(count, Uniform(*PROMPTS), Uniform(*OUTPUTS), seed=SEED)


def _served(workload: Any, block_size: int, scheduler: Any = None) -> Any:
    """The engine after it, with `SLOTS` slots and a trace; pages unless a scheduler is given."""
    from llmserve_lab import LLM, load
    from llmserve_lab.course.counting_pool import CountingPool
    from llmserve_lab.simulate import run_live

    pool = CountingPool(SLOTS // block_size, block_size, enable_prefix_caching=scheduler is None)
    model = load("lab-target")
    llm = LLM(model, max_model_len=SLOTS // 4, block_pool=pool, scheduler=scheduler, trace=True)
    run_live(llm, workload)
    return llm


def _attention_flops(keys: Any, values: Any) -> int:
    """What torch counts for one query of each KV head over these keys and values."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    query = torch.ones(keys.shape[1], 1, keys.shape[2], dtype=keys.dtype, device=keys.device)
    with FlopCounterMode(display=False) as counter:
        weights = (query @ keys.permute(1, 2, 0)).softmax(-1)
        weights @ values.transpose(0, 1)
    return int(counter.get_total_flops())


MISCONCEPTIONS = (
    Misconception(
        key="18.no-waste",
        belief="Paging removes all waste of KV memory.",
        wrong="This is wrong: the last block of every request is partly empty.",
        mechanism=(
            "Blocks are handed out whole. A request that has begun a block holds all of its slots, "
            "filled or not: on average half a block less half a slot. What paging removes is the "
            "room that is reserved for tokens to come, and holes between reservations."
        ),
        experiment=last_blocks_stay_half_empty,
    ),
    Misconception(
        key="18.faster-attention",
        belief="PagedAttention makes attention itself faster.",
        wrong="This is wrong: it does the same operations, and has to look up where its data lies.",
        mechanism=(
            "A query meets as many keys and mixes as many values as before. Through a table they "
            "are found block by block, or copied together first: that is additional work. The gain "
            "comes from elsewhere: less waste, so more requests in a step, and each read of the "
            "weights serves more of them. A request alone gains nothing."
        ),
        experiment=attention_does_the_same_work_and_looks_up_more,
    ),
    Misconception(
        key="18.size-one",
        belief="A block size of 1 is best, since it wastes nothing.",
        wrong="This is wrong: it saves a few percent of memory, and pays for every single token.",
        mechanism=(
            "Waste ends at half a block a request, so most of it is gone at 16 already. But each "
            "block has an entry in a table, a reference count, a hash, and a place of its own to "
            "read from. With blocks of 1 token, all of that is needed once a token."
        ),
        experiment=blocks_of_one_token_win_little_and_cost_much,
    ),
)
