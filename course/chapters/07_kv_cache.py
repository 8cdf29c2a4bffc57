# %% key="07-header" tags=["hide"]
from llmserve_lab.course import header

header("07_kv_cache")

# %% [markdown] key="07-problem" lang="en"
# ## The problem
#
# To choose the next token, attention needs the keys and values of all tokens before it. A server
# can compute them again for every token, or keep them: the **KV cache**. It takes, per layer,
#
# $$\text{memory} = O(n \cdot d)$$
#
# with $n$ the length of the sequence and $d$ the hidden dimension. What does it save, what does it
# leave as it was, and does it change the answer?

# %% key="07-imports"
import torch

from llmserve_lab import LLM, SamplingParams, Scheduler, load
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal
from llmserve_lab.course.allocations import allocations
from llmserve_lab.course.counted import counted_flops
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.forgetful import ForgetfulScheduler
from llmserve_lab.course.past import with_past
from llmserve_lab.kv_cache import slots_of
from llmserve_lab.plots import kv_block_map, reuse_map, show, step_work
from llmserve_lab.simulate import GPUS, ModelSize

# %% key="07-model"
model = load("lab-target", dtype="float32")  # rounding stays far below what we compare
(prompt,) = held_out_prompts(model.tokenizer, count=1, num_tokens=64)
params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
LLM(model).generate(prompt, params)  # warm up
print(len(prompt["prompt_token_ids"]), "prompt tokens,", params.max_tokens, "output tokens")

# %% [markdown] key="07-again-prose" lang="en"
# ## Experiment 1: the same request, with a cache and without
#
# The engine runs one request twice. The second time its scheduler *forgets*: before each step it
# declares every token uncomputed, so all keys and values so far are computed again. That is
# decoding without a cache.

# %% key="07-predict-again"
question = "How many times as many tokens does the engine then compute, over the whole request?"
predict("07.recompute", question, low=1, high=1000, unit="times", log=True, default=10)

# %% key="07-predict-exact"
question = "And how many of the 64 greedy tokens will be other ones?"
counts = ["none", "1 to 4", "5 or more"]
predict("07.exact", question, choices=counts, default=counts[1])


# %% key="07-again"
def serve(scheduler, num_tokens=64):
    """One request to its end: the engine, and the tokens that came."""
    engine = LLM(model, scheduler=scheduler, trace=True)
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    return engine, engine.generate(prompt, params)[0].outputs[0].token_ids


cached, tokens = serve(Scheduler())
forgetful, same_tokens = serve(ForgetfulScheduler())
for name, engine in (("with the cache", cached), ("without", forgetful)):
    done = engine.metrics
    print(f"{name:<15}{done.steps} steps, {done.computed_tokens:>5,} tokens computed, ", end="")
    print(f"{1000 * done.seconds:5.0f} ms")

# %% key="07-map"
show(reuse_map({"with the cache": cached.trace, "without": forgetful.trace}))

# %% key="07-reveal-again"
ratio = forgetful.metrics.computed_tokens / cached.metrics.computed_tokens
reveal("07.recompute", ratio)
start = len(prompt["prompt_token_ids"])
assert cached.metrics.computed_tokens == start + 63
assert forgetful.metrics.computed_tokens == sum(range(start, start + 64))

# %% key="07-reveal-exact"
others = sum(a != b for a, b in zip(tokens, same_tokens, strict=True))
reveal("07.exact", counts[(others > 0) + (others > 4)])
assert tokens == same_tokens

# %% key="07-because-causal"
because(
    "07.causal",
    "Tokens come, and the sequence changes. Why are the old keys and values still right?",
    explain=(
        "Attention is **causal**: a token looks only at itself and at those before it. So its "
        "hidden state in every layer, and the key and value made from it, never depend on what "
        "comes later. In a model whose tokens look both ways nothing could be kept."
    ),
)

# %% [markdown] key="07-growth-prose" lang="en"
# The longer the answer, the larger the difference. Steps are equally many; what is in them is not.
# On most machines the time grows by less than the count: a step over many tokens uses the processor
# better than one over a single token.

# %% key="07-growth"
print("output tokens   computed with / without      ms with / without")
for n in (8, 16, 32, 64):
    pair = [serve(scheduler(), n)[0].metrics for scheduler in (Scheduler, ForgetfulScheduler)]
    computed = [done.computed_tokens for done in pair]
    times = [1000 * done.seconds for done in pair]
    print(f"{n:>13}{computed[0]:>12}{computed[1]:>10,}{times[0]:>17.0f}{times[1]:>10.0f}")
    assert computed == [start + n - 1, n * start + n * (n - 1) // 2]

# %% [markdown] key="07-growth-change" lang="en"
# **Change it.** Make the prompt longer (`num_tokens=128` where `prompt` is made) and run from
# there again. One count of the last row grows by 64. And the other?

# %% [markdown] key="07-stays-prose" lang="en"
# ## Experiment 2: what stays
#
# Now one step alone: the operations for the next token, at several lengths. torch counts them while
# the model runs, products with the weights apart from those of attention (queries with keys,
# probabilities with values).

# %% key="07-predict-stays"
question = "With the cache: attention's operations for token 512, against those for token 64?"
factors = ["the same", "8 times as many", "64 times as many"]
predict("07.attention", question, choices=factors, default=factors[0])

# %% key="07-stays"
rows = [
    {"length": n, "cached": counted_flops(model, 1, n - 1), "uncached": counted_flops(model, n)}
    for n in (64, 128, 256, 512)
]
print(
    f"{'length':>6}{'with: weights':>15}{'attention':>11}{'without: weights':>18}{'attention':>15}"
)
for row in rows:
    a, b = row["cached"], row["uncached"]
    print(f"{row['length']:>6}{a['linear']:>15,}{a['attention']:>11,}", end="")
    print(f"{b['linear']:>18,}{b['attention']:>15,}")

# %% key="07-stays-figure"
show(step_work(rows))

# %% key="07-reveal-stays"
short, long = rows[0], rows[-1]
growth = long["cached"]["attention"] / short["cached"]["attention"]
reveal("07.attention", factors[(growth > 1.5) + (growth > 16)])
assert growth == 8 and long["cached"]["linear"] == short["cached"]["linear"]
assert long["uncached"]["attention"] == 64 * short["uncached"]["attention"]

# %% key="07-because-stays"
because(
    "07.stays",
    "Everything about the old tokens is in the cache. Why does attention still grow?",
    explain=(
        "The new token's query is new, and meets **every** key: one product for each earlier "
        "token, and one more with each value. That is O(t) at position t, with the cache as "
        "without. What the cache takes away is the rest: projections and MLP of the old tokens, "
        "and their own attention."
    ),
)

# %% key="07-belief-constant"
belief = misconception("07.constant-attention")
belief

# %% key="07-refute-constant"
belief.refute()

# %% [markdown] key="07-memory-prose" lang="en"
# ## Experiment 3: what is kept
#
# In transformers the cache is called `past_key_values` (from 5.24 on also `cache`). `with_past`
# passes it to the model and returns it. We fill it with the 128 tokens of the request above.

# %% key="07-predict-memory"
question = "How many numbers does it hold, over all 6 layers? (The model's hidden width is 256.)"
predict("07.values", question, low=10_000, high=10_000_000, unit="numbers", log=True)

# %% key="07-memory"
ids = torch.tensor([prompt["prompt_token_ids"] + list(tokens)], device=model.model.device)
with allocations() as seen:
    past = with_past(model.model, ids)[1]
for index, layer in enumerate(past.layers):
    print(f"layer {index}: keys {tuple(layer.keys.shape)}, values {tuple(layer.values.shape)}")
print("(batch, KV heads, tokens, head dimension)")

# %% key="07-memory-bytes"
config = model.model.config
n, kv_width = ids.shape[1], config.num_key_value_heads * config.head_dim
calculated = 2 * n * kv_width * 4  # keys and values of one layer, 4 bytes a number
held = sum(layer.keys.nbytes + layer.values.nbytes for layer in past.layers)
print(f"a layer: 2 x {n} tokens x {kv_width} x 4 bytes = {calculated:,} bytes, calculated")
print(f"all layers: {held:,} bytes in the tensors, {seen.kept:,} allocated")
assert held == config.num_hidden_layers * calculated
assert abs(seen.kept / held - 1) < 0.05

# %% key="07-reveal-memory"
reveal("07.values", held // 4)

# %% key="07-because-memory"
because(
    "07.width",
    "O(n d) would be 2 x 256 numbers a token and layer. Why are there half as many?",
    explain=(
        "Keys and values have the width of the **KV heads**, and here two query heads share one: "
        "2 KV heads of 64, so 128 in place of 256. The growth is the same, O(n d): every token "
        "adds as much as the one before. Only the constant is smaller."
    ),
)

# %% [markdown] key="07-paged-prose" lang="en"
# ## Experiment 4: the same numbers in the engine
#
# The engine keeps no such tensor per request. Its cache is one pool of *slots*; a request's block
# table says in which its tokens lie. Two requests that grow side by side, in small blocks, get
# blocks in between each other's.

# %% key="07-predict-paged"
question = "The engine's keys and values against those in past_key_values: how far apart are they?"
distances = ["equal, bit by bit", "apart by rounding (below 0.001)", "farther apart"]
predict("07.paged", question, choices=distances, default=distances[0])

# %% key="07-paged"
llm = LLM(model, block_size=4, num_blocks=64, trace=True)
for each in (prompt, *held_out_prompts(model.tokenizer, count=1, num_tokens=64, seed=1)):
    llm.add_request(each, params)
for _ in range(63):
    llm.step()
first = llm.trace[-1].running[0]
print("blocks of the first request:", *first.block_table[:16])
print("and then:", *first.block_table[16:])

# %% key="07-paged-map"
show(kv_block_map(llm.trace, title="Where do a request's keys and values lie?"))

# %% [markdown] key="07-paged-read-prose" lang="en"
# Now read back every layer through the block table, and hold it against `past_key_values` of the
# same tokens.

# %% key="07-paged-read"
n = first.num_computed_tokens
slots = torch.tensor(slots_of(list(first.block_table), 0, n, 4), device=model.model.device)
apart = 0.0
for index, layer in enumerate(past.layers):
    keys, values = llm.kv_cache.read(index, slots)  # (tokens, KV heads, head dimension)
    for mine, theirs in ((keys, layer.keys), (values, layer.values)):
        apart = max(apart, float((mine - theirs[0, :, :n].transpose(0, 1)).abs().max()))
print(f"{n} tokens in 6 layers: no number differs by more than {apart:.1e}")
assert apart < 1e-3

# %% key="07-reveal-paged"
reveal("07.paged", distances[(apart > 0) + (apart >= 1e-3)])

# %% key="07-because-paged"
because(
    "07.layout",
    "The one cache is a tensor per layer, the other scattered blocks. Why do they agree?",
    explain=(
        "Where a row lies does not change what is in it: the block table puts the rows back into "
        "their order. The numbers come from the same weights and the same tokens. Only the order "
        "of additions may differ, since the engine computed one token at a time what "
        "transformers computed at once: that is the rounding."
    ),
)

# %% [markdown] key="07-exact-prose" lang="en"
# ## Two more misconceptions, refuted by running them

# %% key="07-belief-exact"
belief = misconception("07.approximate")
belief

# %% key="07-refute-exact"
belief.refute()

# %% key="07-belief-optional"
belief = misconception("07.optional")
belief

# %% key="07-refute-optional"
belief.refute()

# %% [markdown] key="07-worse-prose" lang="en"
# ## What the cache made worse
#
# Memory. Each token of each request now holds 6 KiB until its request ends. On 48 blocks, 12
# requests that grow to 6 blocks each get in each other's way: some give their blocks back, and are
# computed again. The engine can also keep the cache in fewer bits.

# %% key="07-worse"
prompts = held_out_prompts(model.tokenizer, count=12, num_tokens=64)
params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
budget = 48 * LLM(model, num_blocks=1).capacity.block_bytes
served = {}
for dtype in ("auto", "int8", "int4"):
    llm = LLM(model, kv_cache_memory_bytes=budget, kv_cache_dtype=dtype)
    outputs = llm.generate(prompts, params)
    served[dtype] = [output.outputs[0].token_ids for output in outputs]
    done = llm.metrics
    print(
        f"{dtype:>5}: {llm.capacity.num_blocks:>3} blocks of {llm.capacity.block_bytes:,} bytes; ",
        end="",
    )
    print(f"{done.preemptions} sent back, {done.computed_tokens:,} tokens computed")
    assert (done.preemptions > 0) == (dtype == "auto")

# %% [markdown] key="07-lever-prose" lang="en"
# In the same bytes, an 8-bit or 4-bit cache holds more tokens, and no request is sent back here.
# That is bought with an error, since *this* cache does approximate. How large is the error, on text
# that the model has not seen?

# %% key="07-error"
text = held_out_prompts(model.tokenizer, count=1, num_tokens=512, seed=3)[0]
score = SamplingParams(max_tokens=1, prompt_logprobs=0)
known = text["prompt_token_ids"]
loss = {}
for dtype in served:
    scores = LLM(model, kv_cache_dtype=dtype).generate(text, score)[0].prompt_logprobs
    chosen = [entry[token].logprob for token, entry in zip(known[1:], scores[1:], strict=True)]
    loss[dtype] = -sum(chosen) / len(chosen)
    same = sum(a == b for a, b in zip(served[dtype], served["auto"], strict=True))
    print(f"{dtype:>5}: loss {loss[dtype]:.4f} nats a token; {same} of 12 answers as with float32")

# %% key="07-error-reading"
eight, four = (abs(loss[dtype] - loss["auto"]) for dtype in ("int8", "int4"))
print(f"the loss moves by {eight:.4f} with int8 and by {four:.4f} with int4")
assert eight < four

# %% [markdown] key="07-whatif-prose" lang="en"
# ## What if it were a 7B model on a real GPU?
#
# Without a cache, each step reads the weights once and computes all $t$ tokens; with it, it reads
# weights and KV and computes one. By formula a step takes at least
#
# $$\max\left(\frac{\text{bytes}}{\text{bandwidth}}, \frac{2 \cdot \text{parameters} \cdot
# \text{tokens}}{\text{FLOP/s}}\right)$$
#
# First the operations, tested on what was counted above.

# %% key="07-validate"
small = ModelSize.of("lab-target", model.model)
counted = rows[-1]["uncached"]["linear"] - rows[-2]["uncached"]["linear"]  # 256 tokens more
tables = config.vocab_size * config.hidden_size  # only looked up
formula = 2 * (small.parameters - tables) * 256
print(f"256 tokens more: {counted:,} counted, {formula:,} by formula")
assert abs(formula / counted - 1) < 0.01

# %% key="07-whatif"
seven, gpu = ModelSize.llama2_7b(), GPUS["A100"]
print(f"{seven.name} on one {gpu.name}, ms for a token by its position, calculated:")
for t in (64, 256, 1024, 4096):
    weights, kv = seven.weight_bytes, seven.kv_bytes(t)
    one = 2 * seven.parameters / gpu.flops
    with_cache = max((weights + kv) / gpu.bandwidth, one)
    without = max(weights / gpu.bandwidth, one * t)
    print(
        f"{t:>6}: {1000 * with_cache:6.1f} with the cache, {1000 * without:6.1f} without, ", end=""
    )
    print(f"and {kv / 2**30:.2f} GiB held")
    assert without > 10 * with_cache or t < 4096

# %% [markdown] key="07-whatif-change" lang="en"
# **Change it.** At 64 tokens both take the same time: a GPU waits for the weights anyway, and
# recomputes in the meantime. Set `gpu = GPUS["L4"]`: from which of these lengths on does the cache
# save time there? (An L4 computes more for each byte that it reads.)

# %% key="07-quiz"
quiz("07.cost")

# %% key="07-footer" tags=["hide"]
footer("07_kv_cache")
