# %% [markdown] key="02-title" lang="en"
# # Exercise 02: a correct timer, and percentiles
#
# You split a latency into its stages, write both common definitions of a percentile, and build the
# timer that every later measurement of this course could use.
#
# The first answer is worked for you, the next two lack their last steps, the last two are yours. In
# the end your functions run on the real engine. About 30 minutes.

# %% key="02-imports"
import math
from itertools import pairwise

import numpy as np

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.course import check, hint
from llmserve_lab.course.async_device import AsyncDevice

# %% [markdown] key="02-split-prose" lang="en"
# ## 02.1 Where the time went (worked)
#
# Four moments bound three stages. A request *arrived*, a step first ran it (*first scheduled*), and
# its tokens came at the *token times*, all in seconds on one clock.


# %% key="02-split"
def split(arrival, first_scheduled, token_times):
    """Seconds in the queue, in prefill and in decode, as a dict."""
    return {
        "queue": first_scheduled - arrival,
        "prefill": token_times[0] - first_scheduled,
        "decode": token_times[-1] - token_times[0],
    }


print(split(0.0, 0.25, [0.5, 0.75, 1.5]))

# %% key="02-split-check"
check.ex02_split(split)

# %% [markdown] key="02-rank-prose" lang="en"
# ## 02.2 The nearest rank
#
# The smallest measured value that at least `percent` per cent of all values do not exceed. In the
# sorted list it stands at the rank
#
# $$r = \max\left(1, \left\lceil \frac{\mathrm{percent} \cdot n}{100} \right\rceil\right)$$
#
# counted from 1. `percent` is a whole number from 0 to 100; of no values there is no percentile,
# which is `None`.


# %% key="02-rank" exercise="02.2" tags=["solution"]
def nearest_rank(values, percent):
    """The value at the nearest rank; None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    # BEGIN SOLUTION: compute the rank, and return the value that stands there
    rank = max(1, math.ceil(percent * len(ordered) / 100))
    return ordered[rank - 1]
    # END SOLUTION


# %% key="02-rank-check" exercise="02.2" tags=["check"]
check.ex02_nearest_rank(nearest_rank)

# %% [markdown] key="02-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("02.2")` gives a nudge, `hint("02.2", 2)` says more, and
# `hint("02.2", 3)` is nearly the code. The same goes for 02.3 to 02.5.

# %% [markdown] key="02-percentile-prose" lang="en"
# ## 02.3 Between two values
#
# numpy's definition puts the values at the places $0$ to $n - 1$ and looks at
#
# $$\mathrm{place} = \frac{\mathrm{percent} \cdot (n - 1)}{100}$$
#
# If that is no whole number, it takes the value on the straight line between the two neighbours.


# %% key="02-percentile" exercise="02.3" tags=["solution"]
def percentile(values, percent):
    """The percentile with linear interpolation; None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    place = percent * (len(ordered) - 1) / 100
    below = math.floor(place)
    # BEGIN SOLUTION: find the next value above, and go the right share of the way to it
    above = min(below + 1, len(ordered) - 1)
    share = place - below
    return ordered[below] + share * (ordered[above] - ordered[below])
    # END SOLUTION


# %% key="02-percentile-check" exercise="02.3" tags=["check"]
check.ex02_percentile(percentile)

# %% [markdown] key="02-timer-prose" lang="en"
# ## 02.4 A timer for an asynchronous device
#
# A device has `launch(work)`, which only queues, `synchronize()`, which waits until the queue is
# empty, and `clock()`, seconds. Return the seconds per call of `work` once it is warm, from **one**
# reading over `repeats` calls. The first launch of a kernel compiles it, and somebody else's work
# may be in the queue already. `check` tries your timer on devices with a virtual clock.


# %% key="02-timer" exercise="02.4" tags=["stub"]
def seconds_per_call(device, work, repeats):
    """Seconds that one warm call takes, over `repeats` calls."""
    raise NotImplementedError("exercise 02.4: time the work on a device that is asynchronous")


# %% key="02-timer" exercise="02.4" tags=["solution"]
def seconds_per_call(device, work, repeats):
    """Seconds that one warm call takes, over `repeats` calls."""
    device.launch(work)  # the first launch compiles
    device.synchronize()  # and whatever was queued is done
    began = device.clock()
    for _ in range(repeats):
        device.launch(work)
    device.synchronize()
    return (device.clock() - began) / repeats


# %% key="02-timer-check" exercise="02.4" tags=["check"]
check.ex02_timer(seconds_per_call)

# %% [markdown] key="02-report-prose" lang="en"
# ## 02.5 What the users of a run felt
#
# From a list of requests, each a pair of arrival and token times, return a dict with
#
# - `"ttft_p95"`: the 95th percentile of TTFT (with your `percentile`),
# - `"gap_p99"`: the 99th percentile of **all** inter-token gaps, of all requests together,
# - `"rate"`: tokens per second while decoding: number of gaps over sum of gaps.
#
# If no request has a gap, the last two are `None`.


# %% key="02-report" exercise="02.5" tags=["stub"]
def report(requests):
    """TTFT p95 (s), inter-token gap p99 (s) and decode rate (tokens/s) of a run."""
    raise NotImplementedError("exercise 02.5: report what the users of a run felt")


# %% key="02-report" exercise="02.5" tags=["solution"]
def report(requests):
    """TTFT p95 (s), inter-token gap p99 (s) and decode rate (tokens/s) of a run."""
    ttfts = [times[0] - arrival for arrival, times in requests]
    gaps = [after - before for _, times in requests for before, after in pairwise(times)]
    return {
        "ttft_p95": percentile(ttfts, 95),
        "gap_p99": percentile(gaps, 99),
        "rate": len(gaps) / sum(gaps) if gaps else None,
    }


# %% key="02-report-check" exercise="02.5" tags=["check"]
check.ex02_report(report)

# %% [markdown] key="02-device-prose" lang="en"
# ## On a device with a real clock
#
# Your timer on the chapter's `AsyncDevice`, around a part of each decode step: the output layer, a
# product of one hidden state with the rows of the whole vocabulary.

# %% key="02-device"
llm = LLM("lab-target")
weights = llm.model.get_output_embeddings().weight.detach().float().cpu().numpy()
hidden = np.ones(weights.shape[1], dtype=weights.dtype)
print(weights.shape, "x", hidden.shape)

# %% key="02-device-run" exercise="02.4" tags=["check"]
device = AsyncDevice()
seconds = seconds_per_call(device, lambda: weights @ hidden, 200)
print(f"{1e6 * seconds:.0f} microseconds per call; {device.num_launched} launched")
assert device.num_done == device.num_launched > 200  # all timed, and a warm-up before
assert device.num_synchronized < 10  # not after every launch

# %% [markdown] key="02-engine-prose" lang="en"
# ## On the real engine
#
# Ten requests of different lengths through the bundled model, then your functions on the engine's
# own stamps. Your percentiles must agree with numpy's.

# %% key="02-engine"
prompts = ["import os", "def add(a, b):", "class Queue:", "for line in", "raise "] * 2
params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in range(4, 44, 4)]
outputs = llm.generate(prompts, params)
served = [(out.metrics.arrival, list(out.metrics.token_times)) for out in outputs]
print([len(token_times) for _, token_times in served], "tokens")

# %% key="02-stages" exercise="02.3" tags=["check"]
latencies = [out.metrics.e2e for out in outputs]
for percent in (50, 95, 99):
    between, rank = percentile(latencies, percent), nearest_rank(latencies, percent)
    assert rank == np.percentile(latencies, percent, method="inverted_cdf")
    assert abs(between - np.percentile(latencies, percent)) < 1e-9
    print(f"p{percent}: nearest rank {rank:.4f} s, linear {between:.4f} s")

# %% key="02-felt" exercise="02.5" tags=["check"]
felt = report(served)
print({name: round(value, 4) for name, value in felt.items()})
stages = split(served[0][0], outputs[0].metrics.first_scheduled, served[0][1])
assert abs(sum(stages.values()) - outputs[0].metrics.e2e) < 1e-9

# %% [markdown] key="02-close" lang="en"
# **Change one thing**: give the longest request `max_tokens` of 400. Which of the three numbers of
# your report moves most, and which percentile of the latencies hardly notices?
