# %% [markdown] key="19-title" lang="en"
# # Exercise 19: write the continuous scheduler
#
# You count what static and continuous batching take, put the lines of a scheduler in order, and
# then write one of your own, memory included. It serves real requests in the engine.
#
# The first answer is worked for you, the second lacks its last lines, the third is an order, the
# last is yours. About 40 minutes.

# %% key="19-imports"
import random

from llmserve_lab import StaticBatchingScheduler, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.own_scheduler import OwnScheduler
from llmserve_lab.course.plan_lines import LINES, assembled
from llmserve_lab.course.step_run import serve_in_steps
from llmserve_lab.plots import schedule_gantt, show
from llmserve_lab.simulate import Ask, Workload

# %% [markdown] key="19-data" lang="en"
# ## The data
#
# Requests that are all there at the start, in the order in which they came. A prompt is read in the
# step that gives the first token, so an answer of `n` tokens keeps its place for `n` steps.

# %% key="19-lengths"
rng = random.Random(4)
lengths = [rng.randint(24, 36) if i % 4 == 0 else rng.randint(1, 6) for i in range(16)]
slots = 4  # requests in a step at most
print("answers:", lengths)

# %% [markdown] key="19-static-prose" lang="en"
# ## 19.1 Steps of static batching (worked)
#
# Batches of `slots` in order; each lasts as long as its longest answer.


# %% key="19-static"
def static_steps(lengths, slots):
    """Steps until the last answer is done, in batches."""
    batches = [lengths[first : first + slots] for first in range(0, len(lengths), slots)]
    return sum(max(batch) for batch in batches)


print(static_steps(lengths, slots), "steps for", sum(lengths), "tokens")

# %% key="19-static-check"
check.ex19_static_steps(static_steps)

# %% [markdown] key="19-continuous-prose" lang="en"
# ## 19.2 Steps of continuous batching
#
# Each request, in order, takes the place that becomes free first. `places[i]` is the step after
# which place `i` is free. Replace the line that raises.


# %% key="19-continuous" exercise="19.2" tags=["solution"]
def continuous_steps(lengths, slots):
    """Steps until the last answer is done, when each free place is given away at once."""
    places = [0] * slots
    for length in lengths:
        # BEGIN SOLUTION: find the place that is free first, and let it be busy for `length` more
        place = places.index(min(places))
        places[place] += length
        # END SOLUTION
    return max(places)


# %% key="19-continuous-check" exercise="19.2" tags=["check"]
check.ex19_continuous_steps(continuous_steps)

# %% [markdown] key="19-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("19.2")` gives a nudge, `hint("19.2", 2)` says more, and
# `hint("19.2", 3)` is nearly the code. The same goes for 19.3 and 19.4.

# %% [markdown] key="19-order-prose" lang="en"
# ## 19.3 A plan in order
#
# Before each step the engine asks its scheduler for a plan: a list of parts, each some tokens of
# one request. Here are the nine lines of such a plan, shuffled; memory is ample, so `grow`, which
# asks for blocks, never fails. The oldest request comes first in `waiting` and in `running`.

# %% key="19-lines"
for letter, line in LINES.items():
    print(letter, line)

# %% [markdown] key="19-order-ask" lang="en"
# Return their letters in an order that works, as one text. There is more than one. The lines keep
# their indentation.


# %% key="19-order" exercise="19.3" tags=["stub"]
def order():
    """The letters of the lines, from first to last."""
    raise NotImplementedError("exercise 19.3: put the letters a to i in order")


# %% key="19-order" exercise="19.3" tags=["solution"]
def order():
    """The letters of the lines, from first to last."""
    return "chegaifdb"


# %% key="19-order-check" exercise="19.3" tags=["check"]
check.ex19_order(order)

# %% [markdown] key="19-order-run-prose" lang="en"
# `assembled` makes a scheduler of your lines. The requests from above, on the real engine, on a
# clock that counts steps:

# %% key="19-model"
model = load("lab-target", dtype="float32")
asks = Workload(tuple(Ask(0, prompt_tokens=24, output_tokens=n) for n in lengths))
print(len(asks.asks), "requests of 24 prompt tokens")

# %% key="19-order-run" exercise="19.3" tags=["check"]
first = serve_in_steps(model, asks, assembled(order())(), slots)
print("your lines:", first)

# %% [markdown] key="19-write-prose" lang="en"
# ## 19.4 The scheduler
#
# Now memory may run out. Write `plan`:
#
# - who runs goes on in **every** step, the oldest first, while the token budget lasts. If `grow`
#   finds no blocks, send back the one that came last, until there are enough or the request itself
#   is gone
# - what is left of the budget is for those who wait, the oldest first, if there are blocks for
#   **all** their tokens; nobody comes in when somebody was sent back

# %% [markdown] key="19-words-prose" lang="en"
# Your words, all in the docstring of `OwnScheduler`:
#
# - `self.running`, `self.waiting`; `self.preempted`: sent back in this step
# - `self.limits.max_num_seqs`, `self.limits.max_num_batched_tokens`
# - `request.num_uncomputed_tokens`: its whole prompt at first, 1 while it decodes
# - `self.grow(request, count)`: blocks for `count` more tokens; `False` if there are too few
# - `self.start(request)`, `self.send_back(request)`
# - `self.part(request, count)`: the entry of the plan


# %% key="19-write" exercise="19.4" tags=["stub"]
class Continuous(OwnScheduler):
    """First come, first served, and a new plan in every step."""

    def plan(self):
        raise NotImplementedError("exercise 19.4: who goes on, and who is let in?")


# %% key="19-write" exercise="19.4" tags=["solution"]
class Continuous(OwnScheduler):
    """First come, first served, and a new plan in every step."""

    def plan(self):
        batch, left = [], self.limits.max_num_batched_tokens
        for request in list(self.running):
            count = min(request.num_uncomputed_tokens, left)
            while request in self.running and not self.grow(request, count):
                self.send_back(self.running[-1])
            if request in self.running and count > 0:
                batch.append(self.part(request, count))
                left -= count
        while self.waiting and left > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting[0]
            if self.preempted or not self.grow(request, request.num_uncomputed_tokens):
                break
            self.start(request)
            count = min(request.num_uncomputed_tokens, left)
            batch.append(self.part(request, count))
            left -= count
        return batch


# %% [markdown] key="19-write-rules" lang="en"
# It is tried on services with long prompts, crowds and little memory. The answers must be exact,
# nobody may starve, and on requests like those above it must make 1.5 times the tokens per step of
# static batching.

# %% key="19-write-check" exercise="19.4" tags=["check"]
check.ex19_scheduler(Continuous)

# %% [markdown] key="19-engine-prose" lang="en"
# ## On the real engine
#
# The same requests by static batching and by your scheduler. Before you run it: what do 19.1 and
# 19.2 say about the steps?

# %% key="19-engine" exercise="19.4" tags=["check"]
runs = {
    "static": serve_in_steps(model, asks, StaticBatchingScheduler(slots), slots),
    "yours": serve_in_steps(model, asks, Continuous(), slots),
}
for name, run in runs.items():
    print(f"{name:<8}{run}")
assert runs["static"].tokens == runs["yours"].tokens  # every text is the same
assert runs["yours"].tokens_per_step >= 1.5 * runs["static"].tokens_per_step

# %% key="19-engine-steps" exercise="19.2" tags=["check"]
counted = static_steps(lengths, slots), continuous_steps(lengths, slots)
run = serve_in_steps(model, asks, None, slots)
print("by your formulas", counted, "and the engine's own scheduler", run.steps)
assert counted[1] == run.steps

# %% key="19-engine-gantt" exercise="19.4" tags=["check"]
yours = serve_in_steps(model, asks, Continuous(), slots)
static = serve_in_steps(model, asks, StaticBatchingScheduler(slots), slots)
show(schedule_gantt({"static": static, "yours": yours}, "Whose places are empty?"))

# %% [markdown] key="19-tight-prose" lang="en"
# Last, little memory: 6 requests that grow to 4 blocks each, on 10 blocks. Somebody must be sent
# back, and nobody's text may change.

# %% key="19-tight" exercise="19.4" tags=["check"]
grows = Workload(tuple(Ask(i, prompt_tokens=24, output_tokens=32) for i in range(6)))
roomy = serve_in_steps(model, grows, Continuous(), slots)
tight = serve_in_steps(model, grows, Continuous(), slots, num_blocks=10)
for name, run in {"ample": roomy, "10 blocks": tight}.items():
    print(f"{name:<10}{run.steps:>3} steps, {run.preemptions} sent back, ", end="")
    print(f"{run.computed} tokens computed")
assert roomy.tokens == tight.tokens
assert roomy.preemptions == 0 < tight.preemptions

# %% [markdown] key="19-close" lang="en"
# **Change one thing**: in your plan, let the **shortest** prompt in first. Run the check again:
# which request does it name, and why do real servers that prefer short ones need a limit on the
# wait?
