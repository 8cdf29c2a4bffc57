# %% [markdown] key="06-title" lang="en"
# # Exercise 06: a memory calculator
#
# Before a server starts, someone has to know whether the model fits, and how many requests beside
# it. You write that calculation, for dense models and for mixtures, with every kind of attention.
#
# The first part is worked for you, the next two lack their last lines, the last two are yours. In
# the end your numbers size the real engine. About 25 minutes.

# %% key="06-imports"
from math import ceil

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.experiments import MIB, held_out_prompts

# %% [markdown] key="06-data" lang="en"
# ## The data
#
# A model is a dict with its dimensions, as in its config. `latent` is a number only for multi-head
# latent attention (MLA). For a mixture of experts, `parameters` counts all of them and
# `active_parameters` those that one token uses.

# %% key="06-model"
mixtral = {
    "parameters": 46_702_792_704,
    "active_parameters": 12_879_925_248,
    "layers": 32,
    "hidden": 4096,
    "mlp_width": 28672,  # of the two experts that a token uses
    "vocabulary": 32000,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "latent": None,
}
print(len(mixtral), "dimensions;", mixtral["heads"] // mixtral["kv_heads"], "queries share a key")

# %% [markdown] key="06-weights-prose" lang="en"
# ## 06.1 Weights (worked)
#
# Every parameter is a number of `bits` bits: 16 as a rule, 8 or 4 if it is quantized.


# %% key="06-weights"
def weight_bytes(parameters, bits):
    """Bytes of the weights."""
    return parameters * bits / 8


print(f"{weight_bytes(mixtral['parameters'], 16) / 2**30:.1f} GiB")

# %% key="06-weights-check"
check.ex06_weight_bytes(weight_bytes)

# %% [markdown] key="06-token-prose" lang="en"
# ## 06.2 One token's KV cache
#
# In each layer a token leaves a key and a value for every KV head, `head_dim` numbers each. MLA
# keeps `latent` numbers in their place. Replace the line that raises.


# %% key="06-token" exercise="06.2" tags=["solution"]
def kv_token_bytes(model, bits):
    """Bytes that one token takes in the KV cache, over all layers."""
    layers, kv_heads, head_dim = model["layers"], model["kv_heads"], model["head_dim"]
    # BEGIN SOLUTION: count one layer's numbers (with a latent or without), then all bytes
    per_layer = model["latent"] or 2 * kv_heads * head_dim
    return layers * per_layer * bits / 8
    # END SOLUTION


# %% key="06-token-check" exercise="06.2" tags=["check"]
check.ex06_kv_token_bytes(kv_token_bytes)

# %% [markdown] key="06-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("06.2")` gives a nudge, `hint("06.2", 2)` says more, and
# `hint("06.2", 3)` is nearly the code. The same goes for 06.3 to 06.5.

# %% [markdown] key="06-request-prose" lang="en"
# ## 06.3 One request
#
# The engine hands out the KV cache in whole blocks of `block_size` tokens. How many bytes does a
# request hold that has grown to `num_tokens` tokens?


# %% key="06-request" exercise="06.3" tags=["solution"]
def request_bytes(num_tokens, block_size, token_bytes):
    """Bytes of the blocks that a request of so many tokens holds."""
    block_bytes = block_size * token_bytes
    # BEGIN SOLUTION: count the blocks (the last may be part empty), return their bytes
    return ceil(num_tokens / block_size) * block_bytes
    # END SOLUTION


# %% key="06-request-check" exercise="06.3" tags=["check"]
check.ex06_request_bytes(request_bytes)

# %% [markdown] key="06-batch-prose" lang="en"
# ## 06.4 The largest batch
#
# Weights and activation come first; the rest is for requests of `request` bytes each. Return a
# whole number. What if the weights alone do not fit?


# %% key="06-batch" exercise="06.4" tags=["stub"]
def largest_batch(capacity, weights, activation, request):
    """How many requests fit beside weights and activation, all in bytes."""
    raise NotImplementedError("exercise 06.4: count the requests that fit into what is left")


# %% key="06-batch" exercise="06.4" tags=["solution"]
def largest_batch(capacity, weights, activation, request):
    """How many requests fit beside weights and activation, all in bytes."""
    room = max(0, capacity - weights - activation)
    return int(room // request)


# %% key="06-batch-check" exercise="06.4" tags=["check"]
check.ex06_largest_batch(largest_batch)

# %% [markdown] key="06-plan-prose" lang="en"
# ## 06.5 The whole plan
#
# `activation_bytes` is given: in chapter 06 you saw where its peak lies. `setting` is a dict with
# `weight_bits`, `kv_bits`, `block_size`, `step_tokens`, `context` (tokens of each request) and
# `batch`. Return a dict with `"weights"`, `"kv"` (of `batch` requests), `"activation"` and
# `"largest_batch"`.


# %% key="06-activation"
def activation_bytes(model, step_tokens, batch):
    """Bytes at the peak of a step, in 16 bits: in one layer's MLP, or at the logits."""
    in_layer = step_tokens * (3 * model["mlp_width"] + 4 * model["hidden"])
    return 2 * max(in_layer, batch * model["vocabulary"])


# %% key="06-plan" exercise="06.5" tags=["stub"]
def memory_plan(model, capacity, setting):
    """Bytes of weights, kv and activation, and the largest batch, on `capacity` bytes."""
    raise NotImplementedError("exercise 06.5: plan the memory with your functions")


# %% key="06-plan" exercise="06.5" tags=["solution"]
def memory_plan(model, capacity, setting):
    """Bytes of weights, kv and activation, and the largest batch, on `capacity` bytes."""
    weights = weight_bytes(model["parameters"], setting["weight_bits"])
    activation = activation_bytes(model, setting["step_tokens"], setting["batch"])
    token = kv_token_bytes(model, setting["kv_bits"])
    request = request_bytes(setting["context"], setting["block_size"], token)
    return {
        "weights": weights,
        "kv": setting["batch"] * request,
        "activation": activation,
        "largest_batch": largest_batch(capacity, weights, activation, request),
    }


# %% key="06-plan-check" exercise="06.5" tags=["check"]
check.ex06_memory_plan(memory_plan)

# %% [markdown] key="06-engine-prose" lang="en"
# ## On the real engine
#
# `lab-target` in 48 MiB, with its own dimensions. Your functions say how many blocks the engine
# gets, and how many requests of 96 prompt and 64 output tokens fit.

# %% key="06-engine"
model = load("lab-target", dtype="float32")  # the same bytes on every machine
config = model.model.config
dims = {
    "parameters": model.num_parameters,
    "layers": config.num_hidden_layers,
    "hidden": config.hidden_size,
    "mlp_width": config.intermediate_size,
    "vocabulary": config.vocab_size,
    "kv_heads": config.num_key_value_heads,
    "head_dim": config.head_dim,
    "latent": None,
}
bits = 8 * model.model.dtype.itemsize
print(f"{dims['parameters']:,} parameters of {bits} bits")

# %% key="06-setting"
setting = {"weight_bits": bits, "kv_bits": bits, "block_size": 16, "step_tokens": 256}
print(setting)
setting |= {"context": 96 + 64, "batch": 32}
print("and", setting["context"], "tokens of context,", setting["batch"], "requests")

# %% key="06-size" exercise="06.5" tags=["check"]
planned = memory_plan(dims, 48 * MIB, setting)
room = 48 * MIB - planned["weights"] - planned["activation"]
num_blocks = int(room // request_bytes(16, 16, kv_token_bytes(dims, bits)))
print(f"{num_blocks} blocks; the largest batch is {planned['largest_batch']}")
assert planned["largest_batch"] == num_blocks // ceil(160 / 16)

# %% [markdown] key="06-serve-prose" lang="en"
# The engine must agree about a block's size. With your largest batch nobody is sent back to the
# queue; with one request more, somebody is.

# %% key="06-serve" exercise="06.5" tags=["check"]
largest = memory_plan(dims, 48 * MIB, setting)["largest_batch"]
params = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True)
for batch in (largest, largest + 1):
    llm = LLM(model, num_blocks=num_blocks, max_num_batched_tokens=256)
    assert llm.capacity.block_bytes == 16 * kv_token_bytes(dims, bits)
    llm.generate(held_out_prompts(model.tokenizer, batch, num_tokens=96), params)
    print(f"{batch} requests: {llm.metrics.preemptions} sent back to the queue")
    assert (llm.metrics.preemptions > 0) == (batch > largest)

# %% [markdown] key="06-close" lang="en"
# The plan is exact about blocks, and its activation is a rule for one way of computing a layer.
# That is why servers run their largest step once at the start, look at the peak, and only then
# divide the rest into blocks.
#
# **Change one thing**: in a new cell, plan with `setting | {"kv_bits": 8}`. What does the largest
# batch become, and why is that not yet what `LLM(model, kv_cache_dtype="int8")` would hold?
