# %% [markdown] key="05-title" lang="en"
# # Exercise 05: what a server gets done, and for whom
#
# From the log of a run you compute its throughput, the part of it that came in time, how many
# requests were in the system, and what a million tokens cost. In the end you find the users whom a
# load generator left out.
#
# The first answer is worked for you, the next two lack their last steps, the last two are yours.
# About 30 minutes.

# %% key="05-imports"
from itertools import pairwise

from llmserve_lab import LLM
from llmserve_lab.course import check, hint
from llmserve_lab.simulate import SLO, Ask, LogNormal, Poisson, Workload, run_live

# %% [markdown] key="05-data" lang="en"
# ## The log
#
# A log is a list of requests in any order, each a pair: when it *arrived*, and the list of its
# *token times*, in seconds on one clock. Everyone in the log was served to the end.

# %% key="05-log"
log = [
    (0.0, [0.5, 0.75, 1.0]),  # (arrival, token times)
    (0.25, [1.5, 1.75]),
    (2.0, [2.25]),
]
print(len(log), "requests,", sum(len(times) for _, times in log), "tokens")

# %% [markdown] key="05-throughput-prose" lang="en"
# ## 05.1 Throughput (worked)
#
# Requests done, over the *window* of the run: from the first arrival to the last token.


# %% key="05-throughput"
def window(log):
    """Seconds from the first arrival to the last token."""
    return max(times[-1] for _, times in log) - min(arrival for arrival, _ in log)


def throughput(log):
    """Requests per second."""
    return len(log) / window(log)


print(f"{throughput(log):.3f} requests/s")

# %% key="05-throughput-check"
check.ex05_throughput(throughput)

# %% [markdown] key="05-goodput-prose" lang="en"
# ## 05.2 Goodput
#
# Requests per second that kept **both** promises: a TTFT of at most `ttft`, and a TPOT of at most
# `tpot` seconds. A request of one token has no TPOT to miss. The machine runs for the whole window,
# whoever is late in it.


# %% key="05-goodput" exercise="05.2" tags=["solution"]
def in_time(request, ttft, tpot):
    """Whether a request kept both promises."""
    arrival, times = request
    if times[0] - arrival > ttft:
        return False
    return len(times) == 1 or (times[-1] - times[0]) / (len(times) - 1) <= tpot


def goodput(log, ttft, tpot):
    """Requests per second that kept both promises."""
    # BEGIN SOLUTION: count the requests in time, and divide by the right window
    good = [request for request in log if in_time(request, ttft, tpot)]
    return len(good) / window(log)
    # END SOLUTION


# %% key="05-goodput-check" exercise="05.2" tags=["check"]
check.ex05_goodput(goodput)

# %% [markdown] key="05-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("05.2")` gives a nudge, `hint("05.2", 2)` says more, and
# `hint("05.2", 3)` is nearly the code. The same goes for 05.3 to 05.5.

# %% [markdown] key="05-system-prose" lang="en"
# ## 05.3 How many are in the system
#
# The mean over **time** of the number of requests that have come and not yet gone. Count it from
# the comings and goings, without Little's law: below, the law is to be tested with it.


# %% key="05-system" exercise="05.3" tags=["solution"]
def in_system(log):
    """Mean number of requests in the system, over the window."""
    changes = [(arrival, 1) for arrival, _ in log] + [(times[-1], -1) for _, times in log]
    changes.sort()
    inside, area = 0, 0.0
    # BEGIN SOLUTION: walk from change to change, add up the area, divide by the window
    for (now, change), (following, _) in pairwise(changes):
        inside += change
        area += inside * (following - now)
    return area / window(log)
    # END SOLUTION


# %% key="05-system-check" exercise="05.3" tags=["check"]
check.ex05_in_system(in_system)

# %% [markdown] key="05-cheapest-prose" lang="en"
# ## 05.4 The load that pays
#
# `runs` is a dict: load -> log. The machine costs `price` an hour, and only tokens of requests that
# were in time can be sold. Return `{"load": ..., "cost": ...}`: the load at which a million such
# tokens are cheapest, and what they cost there; `None` if no load has any.


# %% key="05-cheapest" exercise="05.4" tags=["stub"]
def cheapest(runs, ttft, tpot, price):
    """The load with the cheapest million tokens in time, and their cost; None without any."""
    raise NotImplementedError("exercise 05.4: find the load at which a token in time is cheapest")


# %% key="05-cheapest" exercise="05.4" tags=["solution"]
def cheapest(runs, ttft, tpot, price):
    """The load with the cheapest million tokens in time, and their cost; None without any."""
    costs = {}
    for load, log in runs.items():
        good = sum(len(request[1]) for request in log if in_time(request, ttft, tpot))
        if good:
            costs[load] = price * window(log) / 3600 / good * 1_000_000
    if not costs:
        return None
    best = min(costs, key=costs.get)
    return {"load": best, "cost": costs[best]}


# %% key="05-cheapest-check" exercise="05.4" tags=["check"]
check.ex05_cheapest(cheapest)

# %% [markdown] key="05-slow-prose" lang="en"
# ## 05.5 Who is left out
#
# Requests are *due* at planned times, in order. The server does one at a time, each takes its
# *service* time, and a request is sent when it is due **and** the server is free. Return how many
# take longer than `limit`, timed from when they were `"due"` and from when they were `"sent"`.


# %% key="05-slow" exercise="05.5" tags=["stub"]
def slow(due, service, limit):
    """How many are slower than the limit, by both ways of timing."""
    raise NotImplementedError("exercise 05.5: count the slow requests by both ways of timing")


# %% key="05-slow" exercise="05.5" tags=["solution"]
def slow(due, service, limit):
    """How many are slower than the limit, by both ways of timing."""
    free, counts = 0.0, {"due": 0, "sent": 0}
    for planned, seconds in zip(due, service, strict=True):
        sent = max(planned, free)
        free = sent + seconds
        counts["due"] += free - planned > limit
        counts["sent"] += free - sent > limit
    return counts


# %% key="05-slow-check" exercise="05.5" tags=["check"]
check.ex05_slow(slow)

# %% [markdown] key="05-engine-prose" lang="en"
# ## On the real engine
#
# 24 requests at random times, served live at two loads. First your goodput against the engine's
# own, and Little's law with your `in_system`.

# %% key="05-engine"
lengths = LogNormal(40, 0.5, 8, 120), LogNormal(12, 0.5, 4, 32)
engine = LLM("lab-target", max_num_seqs=4)
offline = run_live(engine, Workload.draw(24, *lengths, seed=1))  # warms up
capacity = run_live(engine, Workload.draw(24, *lengths, seed=1)).request_throughput
results = {
    load: run_live(engine, Workload.draw(24, *lengths, Poisson(load * capacity), seed=1))
    for load in (0.6, 1.5)
}
logs = {
    load: [(m.arrival, list(m.token_times)) for m in result.finished]
    for load, result in results.items()
}
print({load: len(log) for load, log in logs.items()}, "requests")

# %% key="05-engine-goodput" exercise="05.2" tags=["check"]
slo = SLO(ttft=4 * offline.percentile("tpot", 50), tpot=2 * offline.percentile("tpot", 50))
for load, result in results.items():
    mine, engines = goodput(logs[load], slo.ttft, slo.tpot), result.goodput(slo)
    assert round(mine * window(logs[load])) == round(engines * result.seconds)  # the same requests
    print(f"load {load}: {throughput(logs[load]):.1f} requests/s, {mine:.1f} in time")

# %% key="05-engine-little" exercise="05.3" tags=["check"]
for load, log in logs.items():
    latency = sum(times[-1] - arrival for arrival, times in log) / len(log)
    law = throughput(log) * latency
    print(f"load {load}: {in_system(log):.3f} in the system, by Little's law {law:.3f}")
    assert abs(in_system(log) - law) < 1e-9 * law

# %% key="05-engine-cheapest" exercise="05.4" tags=["check"]
choice = cheapest(logs, slo.ttft, slo.tpot, price=2.0)
print("cheapest in time:", choice)
assert choice is None or choice["load"] in logs

# %% [markdown] key="05-engine-prose-omit" lang="en"
# The third of 20 requests has a long answer. Your `slow` gets the plan, and the service times that
# the engine measured: how many users waited, and how many of them would be in the report?

# %% key="05-engine-slow" exercise="05.5" tags=["check"]
single = LLM("lab-target", max_num_seqs=1)
usual = run_live(single, Workload(tuple([Ask(0, 16, 4)] * 5))).seconds / 5
asks = tuple(Ask(2 * usual * i, 16, 80 if i == 2 else 4) for i in range(20))
seen = run_live(single, Workload(asks)).finished
start = seen[0].arrival
plan = [m.arrival - start for m in seen]
counts = slow(plan, [m.e2e - m.queue_time for m in seen], 3 * usual)
print(counts, "of", len(seen))
assert counts["due"] >= counts["sent"]

# %% [markdown] key="05-close" lang="en"
# **Change one thing**: let the long answer come last (`i == 19`). Which of the two counts stays the
# same, and why does nobody notice?
