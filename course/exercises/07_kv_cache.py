# %% [markdown] key="07-title" lang="en"
# # Exercise 07: build a KV cache
#
# You build the cache for one head of attention, decode with it token by token, and show that it
# gives what attention over the whole sequence gives. Then you decode with the cache of a real
# model, and count what it computes.
#
# The first part is worked for you, the next two lack their last lines, the last two are yours.
# About 25 minutes.

# %% key="07-imports"
import math

import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.past import with_past

# %% [markdown] key="07-data" lang="en"
# ## The data
#
# One head of width $d$. A token is a vector `x` of $d$ numbers; three matrices make its query, key
# and value. A cache is a dict of two tensors with one row a token: `keys` and `values`, both
# $(n, d)$. With nothing cached they have no rows.

# %% key="07-example"
torch.manual_seed(0)
d = 4
weights = {name: torch.randn(d, d) for name in ("q", "k", "v")}
xs = torch.randn(6, d)  # six tokens
empty = {"keys": torch.zeros(0, d), "values": torch.zeros(0, d)}
print("tokens", tuple(xs.shape), "keys in the empty cache", tuple(empty["keys"].shape))

# %% [markdown] key="07-attend-prose" lang="en"
# ## 07.1 One query over the cache (worked)
#
# $$\mathrm{attend}(q, K, V) = \mathrm{softmax}\!\left(\frac{K q}{\sqrt{d}}\right) V$$
#
# A score for each cached token, and the values mixed by them. No mask: whatever is in the cache
# lies in the past.


# %% key="07-attend"
def attend(q, keys, values):
    """q: (d,); keys, values: (n, d). Returns (d,)."""
    weights = (keys @ q / math.sqrt(len(q))).softmax(dim=0)  # (n,)
    return weights @ values


# %% key="07-attend-check"
check.ex07_attend(attend)

# %% [markdown] key="07-append-prose" lang="en"
# ## 07.2 Append
#
# Return a *new* cache that holds the old tokens and, after them, the new ones. The cache that you
# were given stays as it is: someone else may still use it.


# %% key="07-append" exercise="07.2" tags=["solution"]
def append(cache, keys, values):
    """keys, values: (m, d), of m new tokens. Returns a new cache with their rows last."""
    # BEGIN SOLUTION: return a dict with the rows of the cache, then the new ones
    return {
        "keys": torch.cat([cache["keys"], keys]),
        "values": torch.cat([cache["values"], values]),
    }
    # END SOLUTION


# %% key="07-append-check" exercise="07.2" tags=["check"]
check.ex07_append(append)

# %% [markdown] key="07-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("07.2")` gives a nudge, `hint("07.2", 2)` says more, and
# `hint("07.2", 3)` is nearly the code. The same goes for 07.3 to 07.5.

# %% [markdown] key="07-step-prose" lang="en"
# ## 07.3 One decode step
#
# A new token `x` comes. Compute its query, key and value; only these, nothing of the tokens before
# it. It attends to all tokens so far *and to itself*. Return a dict with `"output"`, `"keys"` and
# `"values"`, the last two with the new token in them.


# %% key="07-step" exercise="07.3" tags=["solution"]
def decode_step(x, weights, cache):
    """x: (d,). Returns the output (d,) and the new cache's keys and values."""
    q = weights["q"] @ x  # (d,)
    k = weights["k"] @ x
    v = weights["v"] @ x
    # BEGIN SOLUTION: append this token's row, attend, and return the output with the new cache
    cache = append(cache, k[None], v[None])
    return {"output": attend(q, cache["keys"], cache["values"]), **cache}
    # END SOLUTION


# %% key="07-step-check" exercise="07.3" tags=["check"]
check.ex07_decode_step(decode_step)

# %% [markdown] key="07-decode-prose" lang="en"
# ## 07.4 A whole sequence, one token at a time
#
# Return the outputs of all tokens, $(n, d)$. The grader compares them with causal attention over
# the whole sequence at once, without a cache: they must be equal.


# %% key="07-decode" exercise="07.4" tags=["stub"]
def decode(xs, weights):
    """xs: (n, d), one token a row. Returns their outputs, (n, d)."""
    raise NotImplementedError("exercise 07.4: decode token by token, with your cache")


# %% key="07-decode" exercise="07.4" tags=["solution"]
def decode(xs, weights):
    """xs: (n, d), one token a row. Returns their outputs, (n, d)."""
    cache = {"keys": torch.zeros(0, xs.shape[1]), "values": torch.zeros(0, xs.shape[1])}
    outputs = []
    for x in xs:
        result = decode_step(x, weights, cache)
        outputs.append(result["output"])
        cache = {"keys": result["keys"], "values": result["values"]}
    return torch.stack(outputs)


# %% key="07-decode-check" exercise="07.4" tags=["check"]
check.ex07_decode(decode)

# %% [markdown] key="07-generate-prose" lang="en"
# ## 07.5 Generate with a model's cache
#
# `step(tokens, cache)` runs a model on a *list* of tokens that follow those in `cache` (`None`:
# nothing), and returns the next token and the new cache. Generate `max_tokens` tokens, as a list,
# and let the model compute no token twice. The grader counts.


# %% key="07-generate" exercise="07.5" tags=["stub"]
def generate(step, prompt, max_tokens):
    """The next `max_tokens` token ids after the prompt (a list of token ids)."""
    raise NotImplementedError("exercise 07.5: compute the prompt once, then one token a step")


# %% key="07-generate" exercise="07.5" tags=["solution"]
def generate(step, prompt, max_tokens):
    """The next `max_tokens` token ids after the prompt (a list of token ids)."""
    token, cache = step(prompt, None)
    tokens = [token]
    while len(tokens) < max_tokens:
        token, cache = step([token], cache)
        tokens.append(token)
    return tokens


# %% key="07-generate-check" exercise="07.5" tags=["check"]
check.ex07_generate(generate)

# %% [markdown] key="07-engine-prose" lang="en"
# ## On the real model
#
# `model_step` runs `lab-target` with transformers' own cache, the one called `past_key_values`, and
# notes how many tokens it computed. Your `generate` must write what the engine writes.

# %% key="07-engine"
model = load("lab-target", dtype="float32")
params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
llm = LLM(model)
text = "def add(a, b):"
expected = list(llm.generate(text, params)[0].outputs[0].token_ids)
prompt = model.tokenizer(text)["input_ids"]
computed = []


def model_step(tokens, cache):
    """The next token by the model, greedily, and its cache."""
    computed.append(len(tokens))
    logits, cache = with_past(model.model, torch.tensor([tokens], device=model.model.device), cache)
    return int(logits.argmax()), cache


# %% key="07-compare" exercise="07.5" tags=["check"]
mine = generate(model_step, prompt, max_tokens=32)
print(model.tokenizer.decode(prompt + mine))
print(f"computed per step: {computed[:4]} ...; {sum(computed)} tokens in all")
assert mine == expected
assert sum(computed) == len(prompt) + 31 == llm.metrics.computed_tokens

# %% [markdown] key="07-close" lang="en"
# Your loop and the engine compute exactly as many tokens. The engine differs in where the cache
# lies: yours grows by copying all rows (`torch.cat`) in each step, the engine writes one row into a
# block that it holds already.
#
# **Change one thing**: make `text` ten times as long, and run the last two cells again. By how much
# does the sum grow, and by how much would it without a cache?
