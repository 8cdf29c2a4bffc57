"""Chapter 17: free in total is not in one piece, and a reservation wastes more than its end."""

from __future__ import annotations

from typing import Any

from llmserve_lab.course.misconceptions import Misconception

REQUESTS, LONGEST = 10, 128
SLOTS, BLOCK = 256, 16


def free_in_total_is_not_enough() -> str:
    from llmserve_lab import ReservingScheduler

    scheduler = ReservingScheduler(to_model_len=False)
    _serve(scheduler)
    turned = [error for error in scheduler.refusals if error is not None]
    blocked = [error for error in turned if error.fragmented]
    assert blocked and all(error.wanted <= error.num_free for error in blocked)
    assert all(error.largest_free_run < error.wanted for error in blocked)
    worst = max(blocked, key=lambda error: error.num_free - error.wanted)
    return (
        f"In {len(turned)} steps the next request found no place, and in {len(blocked)} of these "
        f"enough slots were free in total. Once {worst.wanted} were wanted and {worst.num_free} "
        f"free, but the largest piece had {worst.largest_free_run}."
    )


def most_of_a_reservation_is_not_its_last_block() -> str:
    from llmserve_lab import KVUse, ReservingScheduler, Scheduler

    reserved, paged = (KVUse.of(_serve(make).trace) for make in (ReservingScheduler(), Scheduler()))
    empty = (reserved.held - reserved.used, paged.held - paged.used)
    assert reserved.used == paged.used and empty[0] > 10 * empty[1] > 0
    return (
        f"The same {REQUESTS} requests held {reserved.used:,} tokens, summed over their steps. In "
        f"reservations of {LONGEST} slots {empty[0]:,} more were held and empty, "
        f"{reserved.waste:.0%} of all. In blocks of {BLOCK}, where only the last one is partly "
        f"filled, it was {empty[1]:,}, {paged.waste:.0%}."
    )


def more_memory_is_wasted_in_the_same_share() -> str:
    from llmserve_lab import KVUse, ReservingScheduler

    found = []
    for slots in (SLOTS, 2 * SLOTS):
        llm = _serve(ReservingScheduler(), slots)
        found.append((llm.metrics.max_batch_size, KVUse.of(llm.trace)))
    (few, small), (many, large) = found
    assert many == 2 * few and (small.held, small.used) == (large.held, large.used)
    return (
        f"On {SLOTS} slots {few} requests ran together, on {2 * SLOTS} slots {many}. In both cases "
        f"{small.waste:.0%} of the slots that they held were empty: {small.held - small.used:,} of "
        f"{small.held:,}, summed over steps."
    )


def _serve(scheduler: Any, slots: int = SLOTS) -> Any:
    """Real lengths on `slots` slots, to the end: the engine, with its trace. What is counted does
    not depend on the model, so the small one serves."""
    from llmserve_lab import LLM, load
    from llmserve_lab.course.completions import completions

    model = load("lab-draft")
    asked = completions(model.tokenizer, REQUESTS, LONGEST)
    llm = LLM(
        model, scheduler=scheduler, max_model_len=LONGEST, block_size=BLOCK,
        num_blocks=slots // BLOCK, trace=True,
    )  # fmt: skip
    llm.generate([each.prompt for each in asked], [each.params for each in asked])
    return llm


MISCONCEPTIONS = (
    Misconception(
        key="17.total",
        belief="While enough KV memory is free in total, the next request fits.",
        wrong="This is wrong where a request needs its memory in one piece.",
        mechanism=(
            "Requests of different lengths leave at different times, and what they leave lies in "
            "pieces between the others. A request fits only if one piece is long enough. Free "
            "memory outside the largest piece is external fragmentation."
        ),
        experiment=free_in_total_is_not_enough,
    ),
    Misconception(
        key="17.last-block",
        belief="What is wasted inside a reservation is only its last block, partly filled.",
        wrong="This is wrong: that is all that is wasted with blocks taken as needed.",
        mechanism=(
            "A reservation for the longest possible request is empty from the last token so far to "
            "its end: slots for tokens that come later, and slots that no token ever comes to, as "
            "most requests are far shorter. A partly filled block is a few slots of these."
        ),
        experiment=most_of_a_reservation_is_not_its_last_block,
    ),
    Misconception(
        key="17.more-memory",
        belief="On a GPU with more memory, reserving for the longest request wastes less.",
        wrong="This is wrong: more requests run, and each of them wastes what it wasted before.",
        mechanism=(
            "How much of a reservation stays empty depends on the request's length and on the "
            "reservation's, not on how many of them lie side by side. Twice the memory holds twice "
            "as many, with the same share of empty slots."
        ),
        experiment=more_memory_is_wasted_in_the_same_share,
    ),
)
