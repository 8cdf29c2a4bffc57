# %% [markdown] key="04-title" lang="en"
# # Exercise 04: from logits to text, and how long it takes
#
# The model gives logits; the rest is yours: choosing a token, greedily or by chance, the loop
# around it, and a forecast of its pace.
#
# The first answer is worked, the next two lack their last step, the last three are yours. In the
# end the real engine chooses its tokens with your functions. About 30 minutes.

# %% key="04-imports"
import random

import torch

from llmserve_lab import LLM, SamplingParams, load, measure_peak
from llmserve_lab.course import check, hint
from llmserve_lab.course.own_sampler import use_sampler

# %% [markdown] key="04-data" lang="en"
# ## The data
#
# The logits of one place: a number for each token of the vocabulary. A token is its index.

# %% key="04-example"
torch.set_grad_enabled(False)  # nothing is trained here
logits = torch.tensor([1.0, 3.0, 2.5, -1.0])
print(len(logits), "tokens in this vocabulary")

# %% [markdown] key="04-greedy-prose" lang="en"
# ## 04.1 Greedy (worked)
#
# Always the likeliest token; of equal ones the first. A plain `int`, since a token is an index.


# %% key="04-greedy"
def greedy(logits):
    """The likeliest token."""
    return int(logits.argmax())


print(greedy(logits))

# %% key="04-greedy-check"
check.ex04_greedy(greedy)

# %% [markdown] key="04-temperature-prose" lang="en"
# ## 04.2 Temperature
#
# $$p_i = \frac{e^{z_i / T}}{\sum_j e^{z_j / T}}$$
#
# with the logits $z$ and the temperature $T > 0$. Logits of 400 must not overflow.


# %% key="04-temperature" exercise="04.2" tags=["solution"]
def probabilities(logits, temperature):
    """(vocabulary,) probabilities that sum to 1."""
    # BEGIN SOLUTION: divide by the temperature, then take the softmax
    return (logits / temperature).softmax(dim=-1)
    # END SOLUTION


# %% key="04-temperature-check" exercise="04.2" tags=["check"]
check.ex04_probabilities(probabilities)

# %% [markdown] key="04-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("04.2")` gives a nudge, `hint("04.2", 2)` says more, and
# `hint("04.2", 3)` is nearly the code. The same goes for 04.3 to 04.6.

# %% [markdown] key="04-keep-prose" lang="en"
# ## 04.3 Top-k and top-p
#
# - `top_k`: only the `k` likeliest tokens stay; 0 keeps all. Rescale them to sum to 1.
# - `top_p`: of these, the fewest likeliest tokens whose probabilities reach `top_p` together. At
#   least one stays.
#
# What goes gets exactly 0, what stays is rescaled to sum to 1, each at its own place.


# %% key="04-keep" exercise="04.3" tags=["solution"]
def keep(p, top_k, top_p):
    """The filtered probabilities, at the places of `p`."""
    order = p.argsort(descending=True)[: top_k or len(p)]  # tokens, the likeliest first
    ranked = p[order] / p[order].sum()  # their probabilities, rescaled
    # BEGIN SOLUTION: count how many reach top_p, and put these into a tensor of zeros
    count = int((ranked.cumsum(dim=0) - ranked < top_p).sum())
    kept = torch.zeros_like(p)
    kept[order[:count]] = p[order[:count]]
    return kept / kept.sum()
    # END SOLUTION


# %% key="04-keep-check" exercise="04.3" tags=["check"]
check.ex04_keep(keep)

# %% [markdown] key="04-draw-prose" lang="en"
# ## 04.4 Draw a token
#
# `u` is a random number, at least 0 and below 1. Lay the probabilities end to end from 0 to 1: the
# token on whose part `u` lies is drawn. A part begins where the one before it ends, and a token of
# probability 0 is never drawn.


# %% key="04-draw" exercise="04.4" tags=["stub"]
def draw(p, u):
    """The token that the number u falls on: an int."""
    raise NotImplementedError("exercise 04.4: find the token that u falls on")


# %% key="04-draw" exercise="04.4" tags=["solution"]
def draw(p, u):
    """The token that the number u falls on: an int."""
    ends = p.double().cumsum(dim=0)
    return int((ends <= u).sum())


# %% key="04-draw-check" exercise="04.4" tags=["check"]
check.ex04_draw(draw)

# %% [markdown] key="04-decode-prose" lang="en"
# ## 04.5 The decoding loop
#
# `next_logits(tokens)` is the model: it takes *all* tokens so far, as a list, and gives the logits
# of the next one. Write greedily: at most `max_tokens` new tokens, and stop after `eos`, which
# belongs to the result. Return the new tokens alone, and leave `prompt` as it is.


# %% key="04-decode" exercise="04.5" tags=["stub"]
def decode(next_logits, prompt, max_tokens, eos):
    """The new tokens, a list of ints."""
    raise NotImplementedError("exercise 04.5: write the greedy decoding loop")


# %% key="04-decode" exercise="04.5" tags=["solution"]
def decode(next_logits, prompt, max_tokens, eos):
    """The new tokens, a list of ints."""
    written = []
    while len(written) < max_tokens:
        written.append(greedy(next_logits(prompt + written)))
        if written[-1] == eos:
            break
    return written


# %% key="04-decode-check" exercise="04.5" tags=["check"]
check.ex04_decode(decode)

# %% [markdown] key="04-ms-prose" lang="en"
# ## 04.6 Milliseconds per token, from bandwidth
#
# A decode step of `batch` requests, each with `context` tokens in its cache of `kv_bytes` a token,
# reads the weights and the caches. At `bandwidth` bytes/s, how many milliseconds does each request
# wait for its next token, if nothing else takes time?


# %% key="04-ms" exercise="04.6" tags=["stub"]
def ms_per_token(weight_bytes, kv_bytes, context, batch, bandwidth):
    """The least time of a decode step, in ms."""
    raise NotImplementedError("exercise 04.6: divide what is read by the bandwidth")


# %% key="04-ms" exercise="04.6" tags=["solution"]
def ms_per_token(weight_bytes, kv_bytes, context, batch, bandwidth):
    """The least time of a decode step, in ms."""
    return 1000 * (weight_bytes + batch * context * kv_bytes) / bandwidth


# %% key="04-ms-check" exercise="04.6" tags=["check"]
check.ex04_ms_per_token(ms_per_token)

# %% [markdown] key="04-engine-prose" lang="en"
# ## On the real model and the real engine
#
# Your loop around the bundled model, without a cache: every pass reads the whole text again. The
# engine keeps keys and values. The tokens must be the same.

# %% key="04-real"
model = load("lab-target", dtype="float32")
prompt = model.tokenizer("class Queue:\n    def put(self, item):\n")["input_ids"]
eos = model.tokenizer.eos_token_id
params = SamplingParams(temperature=0, max_tokens=24)
(output,) = LLM(model).generate({"prompt_token_ids": prompt}, params)
theirs = list(output.outputs[0].token_ids)
print(len(prompt), "prompt tokens; the engine wrote", len(theirs))


def next_logits(tokens):
    ids = torch.tensor([tokens], device=model.model.device)
    return model.model(ids, use_cache=False).logits[0, -1]


# %% key="04-real-loop" exercise="04.5" tags=["check"]
mine = decode(next_logits, prompt, 24, eos)
print(repr(model.tokenizer.decode(mine)[:60]))
assert mine == theirs

# %% [markdown] key="04-sampler-prose" lang="en"
# Now the engine asks *your* functions for each token of each request. First greedily, as a test,
# then by chance.

# %% key="04-sampler" exercise="04.2" tags=["check"]
numbers = random.Random(4)


def choose(logits):
    return draw(keep(probabilities(logits, 0.8), top_k=40, top_p=0.95), numbers.random())


own = LLM(model)
use_sampler(own, greedy)
(output,) = own.generate({"prompt_token_ids": prompt}, params)
assert list(output.outputs[0].token_ids) == theirs
use_sampler(own, choose)
for output in own.generate([{"prompt_token_ids": prompt}] * 3, params):
    print(repr(output.outputs[0].text[:60]))

# %% [markdown] key="04-pace-prose" lang="en"
# And the forecast, against this machine. `lab-target` is so small that a step has other costs than
# reading; the forecast is the part that no engine can avoid where the weights come from memory.

# %% key="04-pace" exercise="04.6" tags=["check"]
llm = LLM(model)
(output,) = llm.generate({"prompt_token_ids": prompt}, params)
weights = sum(p.nbytes for p in model.model.parameters())
kv = llm.capacity.block_bytes // llm.pool.block_size
bandwidth = measure_peak(dtype=model.model.dtype).bytes_per_second
floor = ms_per_token(weights, kv, len(prompt), 1, bandwidth)
print(f"forecast {floor:.2f} ms, measured {1000 * output.metrics.tpot:.2f} ms a token")
print(
    f"Llama-2-7B on an A100: {ms_per_token(13.5e9, 524288, 1024, 1, 2.04e12):.1f} ms (calculated)"
)

# %% [markdown] key="04-close" lang="en"
# **Change one thing**: make `choose` use a temperature of 0.2, then of 2. With `top_p=0.95`, how
# many tokens does `keep` leave in each case? Print `int((keep(...) > 0).sum())` in `choose`.
