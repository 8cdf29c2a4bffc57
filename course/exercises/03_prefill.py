# %% [markdown] key="03-title" lang="en"
# # Exercise 03: causal attention, and what it costs
#
# You write the attention of one head, then count a prefill's operations, then find the length at
# which attention overtakes the linear layers. In the end the real engine serves with your
# attention, in chunks too.
#
# The first answer is worked, the next two lack their last step, the last two are yours. About 25
# minutes.

# %% key="03-imports"
import math

import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.counted import counted_flops
from llmserve_lab.course.own_attention import use_attention

# %% [markdown] key="03-data" lang="en"
# ## The data
#
# One head: a row of `d` numbers for each token. `q` may have fewer rows than `k` and `v`: the
# queries are the *newest* `m` of the `n` tokens. In a whole prefill `m` is `n`, in a chunk it is
# the chunk, in decode it is 1.

# %% key="03-example"
torch.set_grad_enabled(False)  # nothing is trained here
q = torch.tensor([[1.0, 0.0], [0.0, 2.0]])  # (m, d): tokens 2 and 3 of 3
k = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # (n, d)
v = torch.tensor([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]])  # (n, d)
print("q", tuple(q.shape), " k", tuple(k.shape), " v", tuple(v.shape))

# %% [markdown] key="03-scores-prose" lang="en"
# ## 03.1 Scores (worked)
#
# $$S = \frac{QK^T}{\sqrt d}$$
#
# Without the square root scores grow with `d`, and the softmax would look at one token only.


# %% key="03-scores"
def scores(q, k):
    """How well each query matches each key: (m, n)."""
    return q @ k.T / math.sqrt(q.shape[-1])


print(scores(q, k))

# %% key="03-scores-check"
check.ex03_scores(scores)

# %% [markdown] key="03-weights-prose" lang="en"
# ## 03.2 Causal weights
#
# The softmax of each row, over the keys that the query may see: itself and those before it. The
# last query is the last token and sees all keys. What is masked must get exactly 0.


# %% key="03-weights" exercise="03.2" tags=["solution"]
def causal_weights(s):
    """(m, n) scores to weights; the m queries are the newest of the n tokens."""
    m, n = s.shape
    query_places = torch.arange(n - m, n)[:, None]  # (m, 1)
    key_places = torch.arange(n)[None, :]  # (1, n)
    # BEGIN SOLUTION: mask the keys that come after the query, then take each row's softmax
    future = key_places > query_places
    return s.masked_fill(future, -math.inf).softmax(dim=-1)
    # END SOLUTION


# %% key="03-weights-check" exercise="03.2" tags=["check"]
check.ex03_causal_weights(causal_weights)

# %% [markdown] key="03-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("03.2")` gives a nudge, `hint("03.2", 2)` says more, and
# `hint("03.2", 3)` is nearly the code. The same goes for 03.3 to 03.5.

# %% [markdown] key="03-attention-prose" lang="en"
# ## 03.3 Attention
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^T}{\sqrt d}\right)V$$
#
# Each query gets a mixture of the values that it may see. `v` may be wider than `k`.


# %% key="03-attention" exercise="03.3" tags=["solution"]
def attention(q, k, v):
    """One row of mixed values for each query: (m, width of v)."""
    s = scores(q, k)
    # BEGIN SOLUTION: weigh the scores causally, and mix the values by the weights
    return causal_weights(s) @ v
    # END SOLUTION


# %% key="03-attention-check" exercise="03.3" tags=["check"]
check.ex03_attention(attention)

# %% [markdown] key="03-flops-prose" lang="en"
# ## 03.4 Count a prefill's operations
#
# For a prompt of `n` tokens, as torch would count it: a product of (a, b) with (b, c) is `2abc`.
#
# - `"linear"`: in each layer, q and output (`hidden` x `hidden`), k and v (`hidden` x `kv_width`),
#   three MLP matrices (`hidden` x `intermediate`).
# - `"attention"`: in each layer, $QK^T$ and the weights with $V$, all heads together, masked
#   entries included.
#
# Leave the output layer out.


# %% key="03-flops" exercise="03.4" tags=["stub"]
def prefill_flops(n, layers, hidden, kv_width, intermediate):
    """A dict of two whole numbers: operations of "linear" and of "attention"."""
    raise NotImplementedError("exercise 03.4: count both kinds of operations")


# %% key="03-flops" exercise="03.4" tags=["solution"]
def prefill_flops(n, layers, hidden, kv_width, intermediate):
    """A dict of two whole numbers: operations of "linear" and of "attention"."""
    weights = 2 * hidden * hidden + 2 * hidden * kv_width + 3 * hidden * intermediate
    return {"linear": 2 * n * weights * layers, "attention": 2 * 2 * n * n * hidden * layers}


# %% key="03-flops-check" exercise="03.4" tags=["check"]
check.ex03_prefill_flops(prefill_flops)

# %% [markdown] key="03-crossover-prose" lang="en"
# ## 03.5 The crossover length
#
# The smallest whole `n` at which attention needs *more* operations than the linear layers. A
# division gets you there, or a search; models are up to 20,000 wide.


# %% key="03-crossover" exercise="03.5" tags=["stub"]
def crossover(layers, hidden, kv_width, intermediate):
    """The smallest prompt length at which attention needs more operations."""
    raise NotImplementedError("exercise 03.5: find where attention overtakes")


# %% key="03-crossover" exercise="03.5" tags=["solution"]
def crossover(layers, hidden, kv_width, intermediate):
    """The smallest prompt length at which attention needs more operations."""
    one = prefill_flops(1, layers, hidden, kv_width, intermediate)
    return one["linear"] // one["attention"] + 1  # n * linear < n * n * attention


# %% key="03-crossover-check" exercise="03.5" tags=["check"]
check.ex03_crossover(crossover)

# %% [markdown] key="03-engine-prose" lang="en"
# ## On the real engine
#
# First your count against torch's own. The counter includes the output layer for the last token,
# yours does not.

# %% key="03-engine-count" exercise="03.4" tags=["check"]
model = load("lab-target", device="cpu", dtype="float32")
c = model.model.config
kv_width = c.num_key_value_heads * c.head_dim
mine = prefill_flops(200, c.num_hidden_layers, c.hidden_size, kv_width, c.intermediate_size)
counted = counted_flops(model, 200)
output_layer = 2 * c.hidden_size * c.vocab_size
print("yours ", mine)
print("torch ", counted)
print("of these", output_layer, "in the output layer")
assert mine == {**counted, "linear": counted["linear"] - output_layer}

# %% [markdown] key="03-serve-prose" lang="en"
# Now the engine serves with your attention: every layer, every head, every request. One engine
# reads prompts whole, one in chunks of 8 tokens.

# %% key="03-serve" exercise="03.3" tags=["check"]
prompts = ["def read(self, size):\n    return", "class Queue:\n    def put(self, item):\n"]
params = SamplingParams(temperature=0, max_tokens=16)
theirs = LLM(model).generate(prompts, params)
for budget in (2048, 8):
    llm = LLM(model, max_num_batched_tokens=budget)
    use_attention(llm, attention)
    outputs = llm.generate(prompts, params)
    print(f"budget {budget}, {llm.metrics.steps} steps: {outputs[0].outputs[0].text!r}")
    assert [o.outputs[0].token_ids for o in outputs] == [o.outputs[0].token_ids for o in theirs]

# %% [markdown] key="03-close" lang="en"
# Your function does not know whether it runs a prefill, a chunk or a decode step: only how many
# queries are the newest. The engine's own does the same, faster.
#
# **Change one thing**: make `causal_weights` forget the offset, as if the queries were the *first*
# `m` tokens. At which of the two budgets does the text change, and why already there?
