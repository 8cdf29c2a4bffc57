# %% [markdown] key="08-title" lang="en"
# # Exercise 08: the batch size for three service levels
#
# Three services share one model: a chat, in which every token is waited for; an assistant, whose
# answers may start late but must flow; and a night job that nobody watches. You fit the cost of a
# step, and choose a batch size for each.
#
# The first answer is worked for you, the next two lack their last lines, the last two are yours.
# About 30 minutes.

# %% key="08-imports"
from math import inf

from llmserve_lab import LLM, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.batch_sweep import measure_batches
from llmserve_lab.course.service import Service
from llmserve_lab.simulate import run_live

# %% [markdown] key="08-data" lang="en"
# ## The data
#
# The cost of a step is a dict, in seconds: `fixed`, and `each` for every request in the batch. A
# step makes one token for each of them. Measured steps are pairs of batch size and seconds.

# %% key="08-cost"
cost = {"fixed": 0.008, "each": 0.0005}
steps = [(1, 0.0085), (2, 0.009), (8, 0.012), (32, 0.024)]  # (batch size, seconds)
print(len(steps), "steps, of", [batch for batch, _ in steps], "requests")

# %% [markdown] key="08-rate-prose" lang="en"
# ## 08.1 Both sides of a batch (worked)
#
# Every user gets a token a step: TPOT is the step's time. The machine makes a token for each
# request.


# %% key="08-rate"
def tpot(cost, batch):
    """Seconds per token of each request."""
    return cost["fixed"] + cost["each"] * batch


def throughput(cost, batch):
    """Tokens per second of all requests together."""
    return batch / tpot(cost, batch)


for batch in (1, 16, 64):
    pace, total = tpot(cost, batch), throughput(cost, batch)
    print(f"batch {batch:>2}: {1000 * pace:.1f} ms, {total:.0f} tokens/s")

# %% key="08-rate-check"
check.ex08_throughput(throughput)

# %% [markdown] key="08-fit-prose" lang="en"
# ## 08.2 The cost of a step
#
# The straight line that fits best by least squares: its slope is the sum of
# $(b - \bar b)(t - \bar t)$ over the sum of $(b - \bar b)^2$, with $\bar b$ and $\bar t$ the means,
# and it passes through $(\bar b, \bar t)$. Replace the line that raises.


# %% key="08-fit" exercise="08.2" tags=["solution"]
def fit(steps):
    """The dict of `fixed` and `each` that fits (batch size, seconds) best."""
    mean_batch = sum(batch for batch, _ in steps) / len(steps)
    mean_time = sum(seconds for _, seconds in steps) / len(steps)
    # BEGIN SOLUTION: find the slope, then where the line meets batch 0; return both
    together = sum((batch - mean_batch) * (seconds - mean_time) for batch, seconds in steps)
    each = together / sum((batch - mean_batch) ** 2 for batch, _ in steps)
    return {"fixed": mean_time - each * mean_batch, "each": each}
    # END SOLUTION


# %% key="08-fit-check" exercise="08.2" tags=["check"]
check.ex08_fit(fit)

# %% [markdown] key="08-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("08.2")` gives a nudge, `hint("08.2", 2)` says more, and
# `hint("08.2", 3)` is nearly the code. The same goes for 08.3 to 08.5.

# %% [markdown] key="08-knee-prose" lang="en"
# ## 08.3 Where doubling stops paying
#
# Go through the batch sizes 1, 2, 4, 8 and so on. Return the first for which *twice* that batch
# makes less than `gain` times the tokens per second; if there is none up to `most`, return `None`.


# %% key="08-knee" exercise="08.3" tags=["solution"]
def knee(cost, gain, most):
    """The first batch 1, 2, 4, ... <= most whose doubling gives less than `gain`; None if none."""
    batch = 1
    while batch <= most:
        # BEGIN SOLUTION: compare twice the batch with the batch; return it, or go on to the next
        if throughput(cost, 2 * batch) < gain * throughput(cost, batch):
            return batch
        batch *= 2
    return None
    # END SOLUTION


# %% key="08-knee-check" exercise="08.3" tags=["check"]
check.ex08_knee(knee)

# %% [markdown] key="08-largest-prose" lang="en"
# ## 08.4 The largest batch within a promise
#
# No step may take longer than `limit` seconds, and the KV cache holds at most `room` requests.
# Return the largest batch that keeps both, a whole number; 0 if even one request is too slow. A
# promise that is met exactly is kept.


# %% key="08-largest" exercise="08.4" tags=["stub"]
def largest_batch(cost, limit, room):
    """The most requests in a step that takes at most `limit` seconds, and that fit."""
    raise NotImplementedError("exercise 08.4: find the largest batch within the promise")


# %% key="08-largest" exercise="08.4" tags=["solution"]
def largest_batch(cost, limit, room):
    """The most requests in a step that takes at most `limit` seconds, and that fit."""
    batch = 0
    while batch < room and tpot(cost, batch + 1) <= limit:
        batch += 1
    return batch


# %% key="08-largest-check" exercise="08.4" tags=["check"]
check.ex08_largest_batch(largest_batch)

# %% [markdown] key="08-service-prose" lang="en"
# ## 08.5 Three service levels
#
# Now users come at random. `service.run(limit)` serves them with at most `limit` in a step, by the
# engine's own scheduler on a virtual clock: the same result each time. Nothing there is hidden:

# %% key="08-service"
service = Service(fixed=0.003, each=0.0003, rate=90, prompt_token=0.0001)  # rate: requests/s
run = service.run(4)
print(f"{len(run.waits)} requests in {run.seconds:.2f} s, at most {run.largest} in a step")
for ttft, pace in run.waits[:3]:
    print(f"first token after {ttft:.3f} s, then {pace:.4f} s per token")

# %% [markdown] key="08-choose-prose" lang="en"
# `promise` is a pair: the longest TTFT and the longest TPOT. Run the service with each of `limits`
# and return the limit under which most requests **per second** keep both halves. Of equally good
# ones take the smallest limit, since it holds least memory; `None` if no request ever does.


# %% key="08-choose" exercise="08.5" tags=["stub"]
def choose(service, limits, promise):
    """The limit on the batch under which most requests per second keep the promise."""
    raise NotImplementedError("exercise 08.5: run the service with each limit, and choose")


# %% key="08-choose" exercise="08.5" tags=["solution"]
def choose(service, limits, promise):
    """The limit on the batch under which most requests per second keep the promise."""
    best, most = None, 0.0
    for limit in sorted(limits):
        run = service.run(limit)
        kept = [ttft <= promise[0] and pace <= promise[1] for ttft, pace in run.waits]
        if sum(kept) / run.seconds > most:
            best, most = limit, sum(kept) / run.seconds
    return best


# %% key="08-choose-check" exercise="08.5" tags=["check"]
check.ex08_choose(choose)

# %% [markdown] key="08-levels-prose" lang="en"
# The three levels on one service. Before you run it: which gets the smallest limit?

# %% key="08-levels" exercise="08.5" tags=["check"]
limits = [1, 2, 4, 8, 16, 32]
levels = {
    "interactive": (0.05, 0.008),  # TTFT and TPOT, in seconds
    "standard": (0.3, 0.005),
    "offline": (inf, inf),
}
picked = {level: choose(service, limits, promise) for level, promise in levels.items()}
print(picked)
assert picked["standard"] < picked["interactive"] <= picked["offline"]

# %% [markdown] key="08-levels-so" lang="en"
# The strictest wait for the *first* token does not get the smallest batch: waiting for a place
# costs more than a longer step. It is the strict *pace* that wants few in a step.
#
# ## On the real engine
#
# Steps of the bundled model, measured now, through your functions.

# %% key="08-engine"
model = load("lab-target")
points = measure_batches(model, [1, 2, 4, 8, 16, 32], context=32)
seen = [(point.batch_size, point.seconds) for point in points]
for batch, seconds in seen:
    print(f"batch {batch:>2}: {1000 * seconds:6.2f} ms")

# %% key="08-engine-fit" exercise="08.2" tags=["check"]
measured = fit(seen)
for batch, seconds in seen:
    mine = 1000 * tpot(measured, batch)
    print(f"batch {batch:>2}: {1000 * seconds:6.2f} ms, by your line {mine:6.2f}")

# %% key="08-engine-batch" exercise="08.2" tags=["check"]
measured = fit(seen)
limit = 3 * seen[0][1]
largest = largest_batch(measured, limit, room=64)
print("doubling gives less than a third more from batch", knee(measured, 4 / 3, most=1024))
print(f"at most {1000 * limit:.1f} ms a token: batch {largest}")
assert 0 <= largest <= 64

# %% [markdown] key="08-serve-prose" lang="en"
# Last, your cost becomes a service, at nine tenths of what a batch of 8 can do. Your choice sets
# `max_num_seqs`, and the engine serves the same requests in real time.

# %% key="08-serve" exercise="08.2" tags=["check"]
sure = {part: max(seconds, 1e-5) for part, seconds in fit(seen).items()}  # noise may go below 0
rate = 0.9 * throughput(sure, 8) / 8  # an answer has about 8 tokens
mine = Service(**sure, rate=rate, prompt_token=sure["each"])
chosen = choose(mine, limits, promise=(20 * tpot(sure, 1), 3 * tpot(sure, 1)))
llm = LLM(model, max_num_seqs=chosen or max(limits))
live = run_live(llm, mine.workload())
together = llm.metrics.max_batch_size
print(f"limit {chosen}: {len(live.finished)} requests, at most {together} together")
assert together <= (chosen or max(limits))
assert live.num_output_tokens == mine.workload().num_output_tokens

# %% [markdown] key="08-close" lang="en"
# **Change one thing**: give `service` twice the `rate`. Does any level's choice move? And which
# level can no longer be kept for most requests? (Count those of `service.run(limit).waits` that
# keep its promise, with the limit you chose.)
