# %% [markdown] key="01-title" lang="en"
# # Exercise 01: how long one waits, how much gets done
#
# An engine reports one thing about a request: the times at which its tokens came. From these you
# compute the four numbers of serving: TTFT, latency, TPOT and throughput.
#
# The first is worked for you, the next two lack their last step, the last two are yours. In the
# end your functions run on the real engine's times. About 20 minutes.

# %% key="01-imports"
from statistics import median

from llmserve_lab import LLM, SamplingParams
from llmserve_lab.course import check, hint

# %% [markdown] key="01-data" lang="en"
# ## The data
#
# A request is a pair: when it *arrived*, and the list of its *token times*, all in seconds on one
# clock. The second request arrives while the first is being served.

# %% key="01-run"
run = [
    (0.0, [0.5, 0.625, 0.75, 1.25]),  # (arrival, token times)
    (0.25, [0.625, 0.875]),
]
arrival, token_times = run[0]
print(len(run), "requests;", len(token_times), "tokens in the first")

# %% [markdown] key="01-ttft-prose" lang="en"
# ## 01.1 Time to first token (worked)
#
# TTFT is what a user waits before anything appears:
#
# $$\mathrm{TTFT} = t_1 - t_\mathrm{arrival}$$
#
# with $t_1$ the time of the first token. The queue and the prefill are in it.


# %% key="01-ttft"
def ttft(arrival, token_times):
    """Seconds from the arrival to the first token."""
    return token_times[0] - arrival


print([ttft(*request) for request in run])

# %% [markdown] key="01-ttft-check-prose" lang="en"
# `check` tries your function on inputs that this notebook does not show. The worked one passes.

# %% key="01-ttft-check"
check.ex01_ttft(ttft)

# %% [markdown] key="01-latency-prose" lang="en"
# ## 01.2 End-to-end latency
#
# From the arrival to the last token. Replace the line that raises.


# %% key="01-latency" exercise="01.2" tags=["solution"]
def latency(arrival, token_times):
    """Seconds from the arrival to the last token."""
    # BEGIN SOLUTION: return the seconds from the arrival to the last token
    return token_times[-1] - arrival
    # END SOLUTION


# %% key="01-latency-check" exercise="01.2" tags=["check"]
check.ex01_latency(latency)

# %% [markdown] key="01-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("01.2")` gives a nudge, `hint("01.2", 2)` says more, and
# `hint("01.2", 3)` is nearly the code. The same goes for 01.3 to 01.5.

# %% [markdown] key="01-tpot-prose" lang="en"
# ## 01.3 Time per output token
#
# TPOT is the pace at which text appears after the first token:
#
# $$\mathrm{TPOT} = \frac{\mathrm{latency} - \mathrm{TTFT}}{n - 1}$$
#
# with $n$ the number of output tokens. A request of one token has no pace: its TPOT is `None`,
# which is not 0.


# %% key="01-tpot" exercise="01.3" tags=["solution"]
def tpot(arrival, token_times):
    """Mean seconds between tokens after the first; None for a single token."""
    n = len(token_times)
    if n == 1:
        return None
    # BEGIN SOLUTION: divide the time after the first token by the number of gaps
    return (latency(arrival, token_times) - ttft(arrival, token_times)) / (n - 1)
    # END SOLUTION


# %% key="01-tpot-check" exercise="01.3" tags=["check"]
check.ex01_tpot(tpot)

# %% [markdown] key="01-throughput-prose" lang="en"
# ## 01.4 Throughput
#
# The server's view: output tokens per second, over a whole run.
#
# $$\mathrm{throughput} = \frac{\text{output tokens of all requests}}{t_\text{last token} -
# t_\text{first arrival}}$$
#
# Requests overlap, and need not be listed in the order of their arrival. Before you write it:
# for `run`, is it more or less than the sum of each request's own tokens per second?


# %% key="01-throughput" exercise="01.4" tags=["solution"]
def throughput(requests):
    """Output tokens per second of a run: a list of (arrival, token_times)."""
    # BEGIN SOLUTION: count the tokens, find the first arrival and the last token, divide
    tokens = sum(len(token_times) for _, token_times in requests)
    first = min(arrival for arrival, _ in requests)
    last = max(token_times[-1] for _, token_times in requests)
    return tokens / (last - first)
    # END SOLUTION


# %% key="01-throughput-check" exercise="01.4" tags=["check"]
check.ex01_throughput(throughput)

# %% [markdown] key="01-summarise-prose" lang="en"
# ## 01.5 A run in four numbers
#
# Return a dict with the keys `"ttft"`, `"tpot"`, `"latency"` (each the *median* over the
# requests) and `"throughput"`. Requests without a TPOT are left out of its median; if none has
# one, it is `None`.


# %% key="01-summarise" exercise="01.5" tags=["stub"]
def summarise(requests):
    """Median ttft, tpot and latency (s), and throughput (tokens/s), of a run."""
    raise NotImplementedError("exercise 01.5: summarise a run with your four functions")


# %% key="01-summarise" exercise="01.5" tags=["solution"]
def summarise(requests):
    """Median ttft, tpot and latency (s), and throughput (tokens/s), of a run."""
    tpots = [tpot(*request) for request in requests]
    tpots = [value for value in tpots if value is not None]
    return {
        "ttft": median(ttft(*request) for request in requests),
        "tpot": median(tpots) if tpots else None,
        "latency": median(latency(*request) for request in requests),
        "throughput": throughput(requests),
    }


# %% key="01-summarise-check" exercise="01.5" tags=["check"]
check.ex01_summarise(summarise)

# %% [markdown] key="01-engine-prose" lang="en"
# ## On the real engine
#
# Four prompts through the bundled model. The engine stamps each token; the times below are this
# machine's, from the run you start now.

# %% key="01-engine"
llm = LLM("lab-target")
prompts = ["def add(a, b):", "import os", "class Queue:", "for line in"]
params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
outputs = llm.generate(prompts, params)
served = [(out.metrics.arrival, list(out.metrics.token_times)) for out in outputs]
print([len(token_times) for _, token_times in served], "tokens")

# %% [markdown] key="01-compare-prose" lang="en"
# Your numbers, and the engine's own. They must agree request by request.

# %% key="01-compare" exercise="01.3" tags=["check"]
for request, out in zip(served, outputs, strict=True):
    mine = ttft(*request), tpot(*request), latency(*request)
    theirs = out.metrics.ttft, out.metrics.tpot, out.metrics.e2e
    pairs = list(zip(mine, theirs, strict=True))
    assert all(a is b or abs(a - b) < 1e-9 for a, b in pairs), pairs
    print("TTFT {:.4f} s   TPOT {:.4f} s   latency {:.4f} s".format(*mine))

# %% key="01-summary" exercise="01.5" tags=["check"]
summary = summarise(served)
rates = [len(token_times) / latency(arrival, token_times) for arrival, token_times in served]
print(f"throughput {summary['throughput']:.0f} tokens/s; ", end="")
print(f"the fastest request alone {max(rates):.0f} tokens/s")
assert summary["throughput"] > max(rates)

# %% [markdown] key="01-close" lang="en"
# The server's rate is above that of any one request, since each step makes a token for all of
# them. Chapter 01 shows what that costs each request.
#
# **Change one thing**: raise `max_tokens` to 96. Which of the four numbers changes least, and why?
