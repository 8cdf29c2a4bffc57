# %% key="19-header" tags=["hide"]
from llmserve_lab.course import header

header("19_static_vs_continuous_batching")

# %% [markdown] key="19-problem" lang="en"
# ## The problem
#
# Requests that run together share each read of the weights. Who decides which ones do, and when?
# You measure each row, on the same requests:
#
# | | Static | Continuous |
# |---|---|---|
# | a batch is formed | by collecting for a while | as soon as one ends |
# | it starts | all at once | each when ready |
# | unit | request | token |
# | latency | late ones wait | least waiting |
# | GPU | may idle | hardly idles |
# | throughput | limited | high |
# | real time | poor fit | very good |
# | who | older servers | vLLM and others |

# %% key="19-imports"
from collections import Counter
from itertools import pairwise
from statistics import median
from time import perf_counter, process_time

import torch

from llmserve_lab import LLM, Scheduler, StaticBatchingScheduler, load, plots
from llmserve_lab.course import because, footer, guess_for, misconception, predict, quiz, reveal
from llmserve_lab.course.forward_calls import forward_calls
from llmserve_lab.course.step_cost import StepCost
from llmserve_lab.course.step_run import arrive_in_steps, lives, same_tokens, serve_in_steps
from llmserve_lab.course.two_part_machine import TwoPartMachine
from llmserve_lab.plots import show
from llmserve_lab.simulate import Ask, Constant, LogNormal, Simulator, Uniform, Workload, run_live

# %% [markdown] key="19-who-prose" lang="en"
# ## Experiment 1: who is in the batch?
#
# Twelve requests come, one in each step. A step holds 4. The prompts have 32 tokens and are read in
# one step, which also gives the first token: an answer of $n$ tokens keeps its place for $n$ steps.
#
# We count time in **steps**: the real engine runs on a clock that goes on by 1 in each. So
# everything here is exact, and the same on your machine.

# %% key="19-requests"
model = load("lab-draft", dtype="float32")  # steps do not depend on the model's size
lengths = [6, 20, 4, 9, 3, 16, 5, 8, 12, 2, 7, 4]  # of the answers
asks = Workload(tuple(Ask(i, prompt_tokens=32, output_tokens=n) for i, n in enumerate(lengths)))
print(f"{sum(lengths)} tokens in 4 places: {sum(lengths) // 4} steps at least")

# %% key="19-predict-steps"
question = "How many steps does static batching take, in batches of 4, in the order of arrival?"
predict("19.steps", question, low=24, high=96, step=1, unit="steps", default=36)

# %% key="19-predict-continuous"
question = "And if each free place is given at once to the one who has waited longest?"
ranges = ["24 to 30 steps", "31 to 40 steps", "more than 40 steps"]
predict("19.continuous", question, choices=ranges, default=ranges[1])


# %% key="19-run"
def static(window=8):
    """Batches of 4; one that is not full starts when its oldest has waited `window` steps."""
    return StaticBatchingScheduler(batch_size=4, max_wait=window)


runs = {
    "static": serve_in_steps(model, asks, static()),
    "continuous": serve_in_steps(model, asks, Scheduler()),
}
for name, run in runs.items():
    print(f"{name:<11}{run}")
assert same_tokens(list(runs.values()))  # the texts are the same

# %% key="19-gantt"
show(plots.schedule_gantt(runs))

# %% [markdown] key="19-gantt-prose" lang="en"
# Move the slider (arrow keys work) to the step in which the first static answer ends. From there
# on, whose place is empty, and who waits for it?

# %% key="19-reveal-steps"
reveal("19.steps", runs["static"].steps)

# %% key="19-reveal-continuous"
took = runs["continuous"].steps
reveal("19.continuous", ranges[(took > 30) + (took > 40)])

# %% key="19-unit"
for name, run in runs.items():
    print(f"{name:<11}starts in steps", *(int(life.started) for life in run.lives))
    print(f"{'':<11}{run.joined} joined others under way; empty while somebody waits: {run.wasted}")
assert runs["static"].joined == runs["continuous"].wasted == 0
assert runs["continuous"].joined > 0

# %% key="19-because-unit"
because(
    "19.unit",
    "Both schedulers see the same queue. What does one of them decide more often?",
    explain=(
        "**Who runs.** The static one decides for whole requests: once, until the last of them is "
        "done. The continuous one decides before each step, that is for one token of each "
        "(*iteration-level scheduling*: Orca, Yu et al., OSDI 2022). Only at such a point can a "
        "place change hands."
    ),
)

# %% [markdown] key="19-generate-prose" lang="en"
# ### Who does it
#
# *Static*: a plain `generate` of transformers over a batch. Also servers made for models of one
# pass: Triton's dynamic batcher collects for up to `max_queue_delay_microseconds`. *Continuous*:
# Orca, then vLLM, TGI, transformers' `generate_batch`; TensorRT-LLM calls it *in-flight batching*,
# LightLLM *dynamic batch*. (By their documentation, November 2026.)
#
# Is `generate` the static scheduler? The first four requests again, each row to its own length.

# %% key="19-generate"
first = torch.tensor(runs["static"].prompts[:4], device=model.model.device)
wanted = torch.tensor(lengths[:4], device=model.model.device)
with forward_calls(model.model) as calls:
    model.model.generate(
        first, attention_mask=torch.ones_like(first), do_sample=False, eos_token_id=None,
        pad_token_id=0, max_new_tokens=64,
        stopping_criteria=[lambda ids, scores, **rest: ids.shape[1] - 32 >= wanted],
    )  # fmt: skip
computed = sum(call.shape[0] for call in calls)
print(f"{len(calls)} passes of {calls[-1].shape[0]} rows for answers of {lengths[:4]} tokens")
print(f"{computed} tokens computed, {sum(lengths[:4])} asked for")
assert len(calls) == max(lengths[:4]) and computed == 4 * len(calls)

# %% [markdown] key="19-window-prose" lang="en"
# As many passes as its longest answer, as in the picture. And it computes on for rows that have
# ended; our static scheduler at least leaves them out.
#
# A batch is collected *for a while*. For how long? Now the same requests, 6 steps apart:

# %% key="19-window"
sparse = Workload(tuple(Ask(6 * i, 32, n) for i, n in enumerate(lengths)))
by_window = {window: serve_in_steps(model, sparse, static(window)) for window in (0, 6, 24)}
for window, run in by_window.items():
    sizes = list(Counter(life.started for life in run.lives).values())
    print(f"window {window:>2}: median TTFT {run.wait(50):4.1f}, batches of {sizes}")
assert by_window[0].wait(50) < by_window[6].wait(50) < by_window[24].wait(50)

# %% [markdown] key="19-window-change" lang="en"
# A longer window makes larger batches and later first tokens: those who are early wait for company.
#
# **Change it.** Set `Ask(2 * i, 32, n)`, a busy server. Why does the window hardly matter now?

# %% [markdown] key="19-late-prose" lang="en"
# ## Experiment 2: who comes late
#
# Now 40 users at random times, one in 7 steps on average, with answers of 2 to 48 tokens, mostly
# about 12. That is well below what 4 places can do. The promise: a first token within 8 steps.
# Static batches start as soon as they can (window 0).

# %% key="19-predict-late"
question = "The p95 of the wait for the first token: how many times as long with static batching?"
predict("19.late", question, low=1, high=100, unit="times", log=True, default=3)

# %% key="19-predict-promise"
question = "How many of the 40 get their first token within 8 steps with static batching?"
predict("19.promise", question, low=0, high=40, step=1, unit="users", default=30)

# %% key="19-late"
users = arrive_in_steps(40, Constant(32), LogNormal(12, 0.6, 2, 48), rate=1 / 7, seed=1)
share = users.num_output_tokens / (4 * users.asks[-1].arrival)
print(f"{share:.0%} of what 4 places can do in that time is asked for")
late = {
    "static": serve_in_steps(model, users, static(0)),
    "continuous": serve_in_steps(model, users),
}
kept = {name: sum(life.wait <= 8 for life in run.lives) for name, run in late.items()}
for name, run in late.items():
    print(f"{name:<11}first token p50 {run.wait(50):3.0f}, p95 {run.wait(95):3.0f}; ", end="")
    print(f"answer p50 {run.latency(50):3.0f}; kept {kept[name]:>2}")
assert share < 0.75 and kept["static"] < kept["continuous"]

# %% key="19-late-figure"
waited = {name: [life.wait for life in run.lives] for name, run in late.items()}
show(plots.first_waits(waited, promise=8))

# %% key="19-late-reveal"
reveal("19.late", late["static"].wait(95) / late["continuous"].wait(95))

# %% key="19-promise-reveal"
reveal("19.promise", kept["static"])

# %% key="19-because-late"
because(
    "19.late",
    "More places than that were not needed. Why did users wait so long all the same?",
    explain=(
        "Whoever comes while a batch is under way waits until its **longest** answer is done, even "
        "if places are empty. And until then others have come, so the next batch is full and has a "
        "long answer again. So a static server is overloaded long before its places are full: a "
        "poor fit for users who watch."
    ),
)

# %% [markdown] key="19-twin-prose" lang="en"
# Do you need the model for that? The simulator runs the same schedulers on a virtual clock. With a
# step of one unit it must give every request the same steps. Then it may try other users.

# %% key="19-twin"
unit = TwoPartMachine(StepCost(fixed=1, each=0))


def twin(workload, scheduler=None, slots=4):
    return Simulator(unit, scheduler=scheduler, max_num_seqs=slots).run(workload)


assert lives(twin(users, static(0))) == late["static"].lives
assert lives(twin(users)) == late["continuous"].lives
print("every request of both has the same steps in the simulation")

# %% key="19-twin-more"
for gap in (12, 8, 6, 4):
    more = arrive_in_steps(200, Constant(32), LogNormal(12, 0.6, 2, 48), rate=1 / gap, seed=2)
    waits = [twin(more, s).percentile("ttft", 95) for s in (static(0), None)]
    print(f"one in {gap:>2} steps: p95 {waits[0]:5.0f} static, ", end="")
    print(f"{waits[1]:4.0f} continuous (simulated)")

# %% [markdown] key="19-late-change" lang="en"
# **Change it.** In `users`, give all the same answer: `Constant(14)` in place of the `LogNormal`.
# Which of the two p95 hardly changes, and what is left of the other's reason to wait?

# %% [markdown] key="19-spread-prose" lang="en"
# ## Experiment 3: how different are the answers?
#
# Now nobody comes late: 40 requests are there, in 8 places. Answers have 16 tokens on average,
# spread evenly over $16 - s$ to $16 + s$.

# %% key="19-predict-equal"
question = "All answers have exactly 16 tokens: how many steps fewer with continuous batching?"
fewer = ["none", "up to a quarter fewer", "more than a quarter fewer"]
predict("19.equal", question, choices=fewer, default=fewer[1])

# %% key="19-predict-spread"
question = "From 1 to 31 tokens: how many times as many steps does static batching take?"
predict("19.spread", question, low=1, high=4, unit="times", default=1.3)


# %% key="19-spread"
def spread_out(s, count=40, seed=2):
    return Workload.draw(count, Constant(16), Uniform(16 - s, 16 + s), seed=seed)


gains = {}
for s in (0, 8, 15):
    pair = [serve_in_steps(model, spread_out(s), k, 8) for k in (StaticBatchingScheduler(8), None)]
    gains[s / 16] = pair[0].steps / pair[1].steps
    used = [f"{100 * run.in_use:.0f}%" for run in pair]
    print(f"{16 - s:>2} to {16 + s} tokens: {pair[0].steps} and {pair[1].steps} steps; ", end="")
    print(f"places in use {used[0]} and {used[1]}")
assert gains[0] == 1 and list(gains.values()) == sorted(gains.values())

# %% [markdown] key="19-spread-formula" lang="en"
# A batch of $B$ lasts as long as its longest answer. Of $B$ lengths between $m - s$ and $m + s$ the
# largest is on average $\frac{B}{B+1}$ of the way up. A place that is given away at once needs $m$
# steps for a request. So, while requests never end,
#
# $$\text{gain} = 1 + \frac{s}{m} \cdot \frac{B - 1}{B + 1}$$

# %% key="19-spread-figure"
calculated = {s / 16: 1 + s / 16 * (8 - 1) / (8 + 1) for s in range(16)}
mine = guess_for("19.spread")
show(plots.spread_gain(gains, calculated, None if mine is None else (15 / 16, mine)))

# %% key="19-spread-long"
for s in (8, 15):
    pair = [twin(spread_out(s, count=400), k, 8) for k in (StaticBatchingScheduler(8), None)]
    gain = pair[0].num_steps / pair[1].num_steps
    print(f"spread {s}/16, 400 requests: {gain:.2f} simulated, {calculated[s / 16]:.2f} by formula")
    assert abs(gain / calculated[s / 16] - 1) < 0.05

# %% key="19-equal-reveal"
reveal("19.equal", fewer[0 if gains[0] == 1 else 1])

# %% key="19-spread-reveal"
reveal("19.spread", gains[15 / 16])

# %% key="19-because-spread"
because(
    "19.spread",
    "Where do the steps go that static batching loses?",
    explain=(
        "Into empty places: everyone's place is kept until the longest is done. Equal answers end "
        "together, so nothing is lost and nothing gained. Real answers differ far more than evenly "
        "spread ones: a few are very long, and each of those holds seven places empty. A short run "
        "gains a little less than the formula, since at its end nobody is left to come in."
    ),
)

# %% [markdown] key="19-seconds-prose" lang="en"
# Steps are not seconds. The same requests on the clock, with the larger model, and with the
# scheduler's own work timed too: it is called before every step.

# %% key="19-seconds"
model = load("lab-target", dtype="float32")


def timed(scheduler):
    plan, scheduler.spent = scheduler.schedule, 0.0

    def schedule():
        began = perf_counter()
        batch = plan()
        scheduler.spent += perf_counter() - began
        return batch

    scheduler.schedule = schedule
    return scheduler


# %% key="19-seconds-run"
clocked = {}
for name, scheduler in {"static": StaticBatchingScheduler(8), "continuous": Scheduler()}.items():
    llm = LLM(model, scheduler=timed(scheduler), max_num_seqs=8)
    clocked[name] = result = run_live(llm, spread_out(15))
    each = 1e6 * scheduler.spent / result.num_steps
    print(f"{name:<11}{result.output_throughput:5.0f} tokens/s, ", end="")
    print(f"{1000 * result.seconds / result.num_steps:.2f} ms a step, {each:.0f} us of it planning")
faster = clocked["static"].seconds / clocked["continuous"].seconds
print(f"{gains[15 / 16]:.2f} times in steps, {faster:.2f} times in seconds")

# %% [markdown] key="19-seconds-so" lang="en"
# On a processor a step with fewer requests is shorter, so the empty places cost less than they
# count: expect a smaller gain in seconds than in steps. (One run each: on a busy machine it may
# even vanish. Run the cell again.) On a GPU a decode step takes about the same for 1 request as for
# 8 (chapter 08): there steps are what you pay.

# %% [markdown] key="19-spread-change" lang="en"
# **Change it.** In `spread_out`, draw the answers from `LogNormal(12, s / 16, 1, 128)`, as in
# chats. How far does the gain at the largest spread get above the formula?

# %% [markdown] key="19-gap-prose" lang="en"
# ## Experiment 4: the newcomer's prompt
#
# A newcomer brings a prompt. Chapter 03 let one long prompt come while others decode; with
# continuous batching that happens all the time. Now 12 requests with prompts of 16 to 640 tokens,
# in 4 places. We follow the stream of one user, in milliseconds.

# %% key="19-predict-gap"
question = "Continuous, whole prompts: its longest gap between tokens, in usual (median) gaps?"
predict("19.gap", question, low=1, high=100, unit="times", log=True, default=3)


# %% key="19-gap"
def live(scheduler, budget=4096):
    workload = Workload.draw(12, LogNormal(160, 0.8, 16, 640), Uniform(8, 32), seed=5)
    llm = LLM(model, scheduler=scheduler, max_num_seqs=4, max_num_batched_tokens=budget, trace=True)
    return run_live(llm, workload)


def beside(run):
    """The most prompt tokens in a step in which somebody decodes."""
    mixed = [s for s in run.trace if any(not item.num_prompt_tokens for item in s.scheduled)]
    return max(sum(item.num_prompt_tokens for item in s.scheduled) for s in mixed)


# %% key="19-gap-runs"
ways = {
    "static": live(StaticBatchingScheduler(4)),
    "whole prompts": live(Scheduler()),
    "chunks of 64": live(Scheduler(), budget=64),
}
for name, run in ways.items():
    print(f"{name:<14}{run.num_steps:>4} steps; ", end="")
    print(f"up to {beside(run):>3} prompt tokens beside a decode")
assert beside(ways["static"]) == 0 < beside(ways["chunks of 64"]) <= 64
assert beside(ways["whole prompts"]) > 64

# %% key="19-gap-figure"
first_four = [o for o in ways["static"].outcomes if int(o.request_id[5:]) <= 4]
user = max(first_four, key=lambda o: o.ask.output_tokens).request_id
streams = {
    name: next(o.metrics for o in run.outcomes if o.request_id == user).token_times
    for name, run in ways.items()
}
show(plots.token_gaps(streams))

# %% key="19-gap-reveal"
gaps = {name: [b - a for a, b in pairwise(times)] for name, times in streams.items()}
ratios = {name: max(values) / median(values) for name, values in gaps.items()}
for name, values in gaps.items():
    print(f"{name:<14}median {1000 * median(values):5.1f} ms, longest {1000 * max(values):6.1f} ms")
reveal("19.gap", ratios["whole prompts"])

# %% key="19-because-gap"
because(
    "19.gap",
    "Why has a static batch no such gaps, and why do chunks make them smaller but more?",
    explain=(
        "A static batch reads all its prompts before anybody's second token, and nobody comes in "
        "later. With continuous batching a step holds the tokens of those who decode *and* a "
        "newcomer's prompt, and ends for all at once. A budget caps the prompt tokens of a step: "
        "no gap is long, but more steps carry a piece, and the newcomer waits for all of them."
    ),
)

# %% [markdown] key="19-gap-change" lang="en"
# **Change it.** Set `budget=256` for the chunks. Where between the two others do the longest gap
# and the number of steps lie?

# %% [markdown] key="19-memory-prose" lang="en"
# ## Experiment 5: when the blocks run out
#
# Who is let in by its prompt alone may find no block later. 12 requests of 32 + 48 tokens grow from
# 2 to 5 blocks each, on a pool of 24, with places for all. Static batching reserves the 5
# beforehand. Continuous batching can do so too (`max_preemptions=0`), or let in more and send
# somebody back.

# %% key="19-predict-memory"
question = "Which one needs the fewest steps?"
policies = ["static", "continuous, reserving", "continuous, sending back"]
predict("19.memory", question, choices=policies, default=policies[2])

# %% key="19-predict-again"
question = "Sending back: what share of all computed tokens is computed a second time?"
predict("19.again", question, low=0, high=100, unit="%", default=10)

# %% key="19-memory"
tight = Workload.draw(12, Constant(32), Constant(48))
once = 12 * (32 + 48 - 1)  # tokens that must be computed; the last of each answer is only given
schedulers = [StaticBatchingScheduler(12), Scheduler(max_preemptions=0), Scheduler()]
memory = {
    name: serve_in_steps(model, tight, scheduler, 12, num_blocks=24)
    for name, scheduler in zip(policies, schedulers, strict=True)
}
for name, run in memory.items():
    print(f"{name}: {run.steps} steps, up to {run.most_together} together")
    print(f"    {run.preemptions} times sent back, {run.computed - once} tokens computed again")
assert same_tokens(list(memory.values()))

# %% key="19-memory-reveal"
reveal("19.memory", min(memory, key=lambda name: memory[name].steps))

# %% key="19-again-reveal"
sending = memory[policies[2]]
reveal("19.again", 100 * (sending.computed - once) / sending.computed)
assert sending.preemptions > 0 and memory[policies[1]].preemptions == 0
assert memory[policies[1]].computed == memory[policies[0]].computed == once

# %% key="19-because-memory"
because(
    "19.memory",
    "Work is thrown away and done again. What is bought with it?",
    explain=(
        "Room while it is still empty: a request that reserves keeps blocks for tokens that come "
        "much later. Let in more, and more make tokens in each step until the blocks run out; then "
        "the one that came last gives its blocks back. Its tokens are computed again as one "
        "prefill, many in a step, so steps are hardly lost. But the work is."
    ),
)

# %% [markdown] key="19-belief-prose" lang="en"
# ## Two misconceptions, refuted by running them

# %% key="19-belief-all"
belief = misconception("19.lower-for-all")
belief

# %% key="19-refute-all"
belief.refute()

# %% key="19-belief-sorted"
belief = misconception("19.sorted")
belief

# %% key="19-refute-sorted"
belief.refute()

# %% [markdown] key="19-worse-prose" lang="en"
# ## What continuous batching made worse
#
# From the runs above: gaps of those who run, work done twice, and a decision before every step. In
# the simulator, which has no model, hardly anything but that decision and its bookkeeping is left
# to take time.

# %% key="19-worse"
for name, ratio in ratios.items():
    print(f"{name:<14}longest gap {ratio:4.1f} times the usual one")
print(f"computed again: {sending.computed - once} of {sending.computed} tokens")
for slots in (8, 64):
    began = process_time()
    steps = twin(spread_out(15, count=400), None, slots).num_steps
    print(f"{slots:>2} places: {1e6 * (process_time() - began) / steps:.0f} us of Python a step")

# %% [markdown] key="19-worse-so" lang="en"
# More places mean more bookkeeping in a step. While a GPU's step takes tens of milliseconds that
# hardly shows; a small model on a fast GPU can wait for its scheduler. Engines then plan the next
# step while this one runs.

# %% [markdown] key="19-whatif-prose" lang="en"
# ## What if it were a 7B model on an A100?
#
# In steps the simulator was exact. With an A100's data sheet for the length of a step (70% of the
# bandwidth, half of the FLOP/s: an assumption) it can be loaded until it no longer keeps up, with
# chats in 32 places. The promise is a loose one: a first token within 4 s for 95%.

# %% key="19-predict-rate"
question = "How many times as many requests per second can continuous batching take on?"
predict("19.rate", question, low=1, high=50, unit="times", log=True, default=2)

# %% key="19-whatif"
from llmserve_lab.simulate import GPUS, Deployment, ModelSize, Poisson

gpu = Deployment(ModelSize.llama2_7b(), GPUS["A100"], bandwidth_share=0.7, flops_share=0.5)
chat = LogNormal(256, 0.8, 16, 1500), LogNormal(96, 0.7, 8, 400)


def on_gpu(rate, scheduler, budget=2048):
    workload = Workload.draw(100, *chat, Poisson(rate), seed=3)
    simulator = Simulator(gpu, scheduler=scheduler, max_num_seqs=32, max_num_batched_tokens=budget)
    return simulator.run(workload)


# %% key="19-whatif-runs"
rates = (1, 2, 4, 8, 16, 24)
kinds = {"static": lambda: StaticBatchingScheduler(32), "continuous": Scheduler}
loads = {name: {rate: on_gpu(rate, kind()) for rate in rates} for name, kind in kinds.items()}
waits = {
    name: {rate: run.percentile("ttft", 95) for rate, run in row.items()}
    for name, row in loads.items()
}
assert len({run.num_output_tokens for row in loads.values() for run in row.values()}) == 1

# %% key="19-whatif-figure"
show(plots.keeping_up(waits, promise=4))

# %% key="19-whatif-reveal"
most = {name: max(r for r, wait in row.items() if wait <= 4) for name, row in waits.items()}
for name, rate in most.items():
    print(f"{name:<11}within the promise up to {rate} requests/s (simulated)")
reveal("19.rate", most["continuous"] / most["static"])

# %% [markdown] key="19-whatif-so" lang="en"
# Far more than the gain in tokens/s: the static server breaks its promise while it has places to
# spare. And the price, at the rate that only one of them can serve:

# %% key="19-whatif-price"
busy = {name: row[most["continuous"]] for name, row in loads.items()}
for name, run in busy.items():
    slow = run.percentile("inter_token_gaps", 99)
    print(f"{name:<11}{run.output_throughput:5.0f} tokens/s; ", end="")
    print(f"TPOT p50 {1000 * run.percentile('tpot', 50):3.0f} ms, gap p99 {1000 * slow:3.0f} ms")
gained = busy["continuous"].output_throughput / busy["static"].output_throughput
print(f"{gained:.1f} times the tokens/s")
assert 1 < gained < most["continuous"] / most["static"]

# %% [markdown] key="19-whatif-change" lang="en"
# **Change it.** Set `budget=256` in `on_gpu` and run from there. What becomes of the gap's p99, and
# what of the rate up to which the promise holds?

# %% [markdown] key="19-table-prose" lang="en"
# ## The table, with your numbers

# %% key="19-table"
s, c = runs["static"], runs["continuous"]
began = [len({life.started for life in run.lives}) for run in (s, c)]
rows = {
    "a batch is formed": (f"{began[0]} times", f"anew in each of {c.steps} steps"),
    "it starts": (f"{12 // began[0]} at once", f"{c.joined} of 12 join those under way"),
    "unit": (f"request: {max(lengths)} steps", "token: 1 step"),
    "first token (p95)": (f"{s.wait(95):.0f} steps", f"{c.wait(95):.0f} steps"),
    "places in use": (f"{s.in_use:.0%}", f"{c.in_use:.0%}"),
    "tokens a step": (f"{s.tokens_per_step:.2f}", f"{c.tokens_per_step:.2f}"),
    "real time, 8 steps": (f"{kept['static']} of 40", f"{kept['continuous']} of 40"),
    "who": ("generate, Triton", "vLLM, TGI, TensorRT-LLM"),
}
for row, (left, right) in rows.items():
    print(f"{row:<20}{left:<20}{right}")

# %% key="19-quiz"
quiz("19.choice")

# %% key="19-footer" tags=["hide"]
footer("19_static_vs_continuous_batching")
