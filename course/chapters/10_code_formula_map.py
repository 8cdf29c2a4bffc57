# %% key="10-header" tags=["hide"]
from llmserve_lab.course import header

header("10_code_formula_map")

# %% [markdown] key="10-problem" lang="en"
# ## The problem
#
# Three words in code stand for three formulas:
#
# | Concept | Code | What it does | Formula |
# |---|---|---|---|
# | generation | `model.generate()` | tokens | $T_{prefill} + T_{decode}$, $p(x_t \mid x_{<t})$ |
# | batch | `batch_size` | requests together | tokens in a call |
# | KV cache | `past_key_values` | keeps keys and values | $2 \, L \, h_{kv} \, d \, b$ a token |
#
# with $L$ layers, $h_{kv}$ KV heads of dimension $d$, and $b$ bytes a number. You see each line
# run, in transformers and in our engine, on the same tokens.

# %% key="10-imports"
import math

import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.attention import BatchMetadata, Segment
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal
from llmserve_lab.course.counted import counted_flops
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.forgetful import ForgetfulScheduler
from llmserve_lab.course.formula_map import FormulaMap
from llmserve_lab.course.forward_calls import cache_bytes, engine_calls, forward_calls
from llmserve_lab.course.padded import left_padded, padded_greedy
from llmserve_lab.course.past_model import PastModel

# %% key="10-imports-more"
from llmserve_lab.engine.core import Engine
from llmserve_lab.engine.forward import Forward
from llmserve_lab.engine.runner import ModelRunner
from llmserve_lab.engine.sampler import Sampler
from llmserve_lab.engine.work import ModelWork
from llmserve_lab.kv_cache import PagedKVCache, slots_of
from llmserve_lab.plots import cache_growth, generate_steps, padding_map, show
from llmserve_lab.simulate import GPUS, ModelSize

# %% key="10-model"
model = load("lab-target", dtype="float32")  # the same tokens on both sides
network, tokenizer = model.model, model.tokenizer
(prompt,) = held_out_prompts(tokenizer, count=1, num_tokens=24)
ids = torch.tensor([prompt["prompt_token_ids"]], device=network.device)
n, k, block_size = ids.shape[1], 8, 4
settings = {"max_new_tokens": k, "do_sample": False, "pad_token_id": tokenizer.eos_token_id}
params = SamplingParams(temperature=0, max_tokens=k, ignore_eos=True, logprobs=1)
the_map = FormulaMap()  # grows as you go
print(f"prompt: {n} tokens, to generate: {k}")

# %% [markdown] key="10-generate-prose" lang="en"
# ## Experiment 1: `model.generate()`
#
# A hook on the model notes what goes into each call of its `forward`. The engine's runner is
# watched in the same way.

# %% key="10-predict-fed"
question = "8 new tokens after 24: how many token ids go into the model, over all its calls?"
predict("10.fed", question, low=1, high=300, unit="token ids", default=32)

# %% key="10-generate"
mask = torch.ones_like(ids)
with forward_calls(network) as theirs:
    output = network.generate(ids, attention_mask=mask, return_dict_in_generate=True, **settings)
tokens = output.sequences[0, n:].tolist()
for number, call in enumerate(theirs, 1):
    print(f"call {number}: {call}, gives {tokenizer.decode(tokens[number - 1])!r}")

# %% key="10-engine"
llm = LLM(model, block_size=block_size, trace=True)
with engine_calls(llm) as ours:
    (answer,) = llm.generate(prompt, params)
for number, call in enumerate(ours, 1):
    print(f"call {number}: {call}")
assert list(answer.outputs[0].token_ids) == tokens
assert len(theirs) == len(ours) == 1 + (k - 1)

# %% key="10-steps"
texts = [tokenizer.decode(token) for token in tokens]
work = ModelWork.of(network, llm.capacity.bytes_per_token)
show(generate_steps(theirs, ours, texts, work))

# %% key="10-reveal-fed"
reveal("10.fed", sum(call.num_tokens for call in theirs))
assert [call.shape for call in theirs] == [(1, n)] + [(1, 1)] * (k - 1)
assert sum(call.num_tokens for call in ours) == n + k - 1

# %% key="10-because-fed"
because(
    "10.last-token",
    "24 and 8 make 32 tokens. Why does one of them never go into the model?",
    explain=(
        "Every call ends with a new token, which is the **input** of the next call. After the "
        "last one nobody asks what follows, so there is no next call. The prefill gives the first "
        "token, and k - 1 calls give the others."
    ),
)

# %% [markdown] key="10-generate-change" lang="en"
# **Change it.** Set `k = 16` and run from there again. From call 2 on, which of the picture's five
# numbers grow, and which hardly? (A call reads all weights, and the cache.)

# %% [markdown] key="10-calculated-prose" lang="en"
# The picture's operations are calculated, from the weights and from pairs of query and key. We hold
# the formula for the second call against what torch counts.

# %% key="10-calculated"
counted = counted_flops(model, 1, n)
print(f"{counted['linear']:,} in products with weights, {work.linear_flops(1, 1):,} by formula")
print(f"{counted['attention']:,} in attention, {work.attention_flops(n + 1):,} by formula")
assert counted == {"linear": work.linear_flops(1, 1), "attention": work.attention_flops(n + 1)}

# %% [markdown] key="10-time-prose" lang="en"
# Now the times. $T_{prefill}$ is the first call and $T_{decode}$ the others. The engine measures
# them as TTFT (with queueing, of which there is none here) and TPOT.

# %% key="10-time"
metrics = answer.metrics
print(f"transformers: {1000 * theirs[0].seconds:.1f} ms in call 1, ", end="")
print(f"{1000 * sum(call.seconds for call in theirs[1:]):.1f} ms in the other {k - 1}")
print(f"our engine:   {1000 * metrics.ttft:.1f} ms to the first token, ", end="")
print(f"{k - 1} x {1000 * metrics.tpot:.1f} ms for the others")
assert math.isclose(metrics.e2e, metrics.ttft + (k - 1) * metrics.tpot)
seen = f"1 + {k - 1} calls on both sides, the same {k} tokens"
the_map.add("model.generate()", "T = T_prefill + T_decode", Engine.step, seen)
the_map.add("model(input_ids)", "n tokens, then 1 a call", Forward, f"{n} token ids, then 1")

# %% [markdown] key="10-off-prose" lang="en"
# With `use_cache=False` the loop is the same, and the input is not: there is nothing to read, so
# everything goes in again. The engine has no such switch; a scheduler that forgets does it.

# %% key="10-off"
with forward_calls(network) as without:
    again = network.generate(ids, attention_mask=mask, use_cache=False, **settings)
forgetful = LLM(model, scheduler=ForgetfulScheduler())
forgetful.generate(prompt, params)
print("shapes:", *(call.shape for call in without[:4]), "...")
fed = sum(call.num_tokens for call in without)
print(f"{fed} token ids in {len(without)} calls; {forgetful.metrics.computed_tokens} in the engine")
assert again[0, n:].tolist() == tokens and len(without) == k
assert fed == forgetful.metrics.computed_tokens == sum(range(n, n + k))
formula = "n + (n + 1) + ... + (n + k - 1)"
the_map.add(
    "use_cache=False", formula, ForgetfulScheduler, f"{fed} token ids in place of {n + k - 1}"
)

# %% [markdown] key="10-row-prose" lang="en"
# ### From logits to a token
#
# One pass over the whole text gives a row of logits for *each* token. Row $i$ holds
# $p(x \mid x_{\le i})$, so row $t - 1$ chooses $x_t$: greedily, its largest value.

# %% key="10-row"
with torch.inference_mode():
    logits = network(output.sequences[:, :-1]).logits  # (1, n + k - 1, vocabulary)
rows = logits[0, n - 1 :].float()  # of the last prompt token, and of each new one but the last
print("all logits", tuple(logits.shape), "those that choose", tuple(rows.shape))
print(f"a call of generate made {theirs[0].rows} row, a call of the engine {ours[0].rows}")
assert rows.argmax(-1).tolist() == tokens
assert theirs[0].rows == ours[0].rows == 1

# %% [markdown] key="10-chain-prose" lang="en"
# The product of these probabilities is that of the whole answer. The engine, token by token through
# its cache, comes to the same sum of logarithms as the one pass.

# %% key="10-chain"
chosen = rows.log_softmax(-1)[range(k), tokens]
entries = zip(answer.outputs[0].logprobs, tokens, strict=True)
engine_sum = sum(entry[token].logprob for entry, token in entries)
print(f"log p(answer | prompt): {chosen.sum():.4f} in one pass, {engine_sum:.4f} in {k} calls")
assert abs(float(chosen.sum()) - engine_sum) < 1e-2
formula = "x_t = argmax p(x_t | x_<t)"
the_map.add("logits[:, -1].argmax(-1)", formula, Sampler.sample, "one row of logits a call")

# %% [markdown] key="10-past-prose" lang="en"
# ## Experiment 2: `past_key_values`
#
# The object that goes from call to call is a `DynamicCache`. (From transformers 5.24 on the
# argument is called `cache`; the object is the same.) First: which parts of a layer run over which
# rows? We hook three of them.

# %% key="10-predict-mlp"
question = "In call 2, with 24 tokens in the cache: how many rows does a layer's MLP compute?"
choices = ["25: the cache is attention's alone", "24: the cached ones", "1: the new token's"]
predict("10.mlp", question, choices=choices, default=choices[0])


# %% key="10-parts"
def rows_of(use_cache):
    """For each part, how many tokens went through it in each call of generate."""
    layer, seen = network.model.layers[0], {"query": [], "MLP": [], "output layer": []}
    modules = (layer.self_attn.q_proj, layer.mlp, network.lm_head)
    hooks = [
        module.register_forward_hook(lambda m, args, out, rows=rows: rows.append(args[0].shape[1]))
        for module, rows in zip(modules, seen.values(), strict=True)
    ]
    network.generate(ids, attention_mask=mask, use_cache=use_cache, **settings)
    for hook in hooks:
        hook.remove()
    return seen


# %% key="10-parts-run"
for use_cache in (False, True):
    for part, counts in rows_of(use_cache).items():
        print(f"use_cache={use_cache!s:<6}{part:<13}", *counts)
assert rows_of(True)["MLP"] == [n] + [1] * (k - 1)
assert rows_of(False)["MLP"] == list(range(n, n + k))

# %% key="10-reveal-mlp"
reveal("10.mlp", {n + 1: choices[0], n: choices[1], 1: choices[2]}[rows_of(True)["MLP"][1]])

# %% key="10-because-mlp"
because(
    "10.only-kv",
    "The MLP's results of the old tokens are kept nowhere. Why are they not needed?",
    explain=(
        "A token touches others in one place only: attention reads the others' **keys and "
        "values**. What the MLP made of an old token has gone into its keys and values of the next "
        "layers, and those are in the cache. So one row passes through the whole layer, and only "
        "inside attention it meets 25."
    ),
)

# %% [markdown] key="10-object-prose" lang="en"
# Now the object itself, as `generate` returned it, and its size by the formula.

# %% key="10-object"
past = output.get("cache") or output.get("past_key_values")
config, held = network.config, n + k - 1
kv_heads, dim = config.num_key_value_heads, config.head_dim
keys = past.layers[0].keys  # (batch, KV heads, tokens, head dimension)
print(type(past).__name__, f"of {len(past.layers)} layers, keys of one: {tuple(keys.shape)}")
by_formula = 2 * config.num_hidden_layers * kv_heads * dim * keys.dtype.itemsize * held
print(f"{cache_bytes(past):,} bytes in its tensors, {by_formula:,} by formula")
assert past.get_seq_length() == held and tuple(keys.shape) == (1, kv_heads, held, dim)
assert cache_bytes(past) == by_formula

# %% [markdown] key="10-table-prose" lang="en"
# The engine has no object per request: one pool of slots for all, and a **block table** that says
# where a request's tokens lie. Each call's **slot mapping** says where its new keys and values go.
# Slot = block x block size + offset.

# %% key="10-table"
table = list(llm.trace[-1].finished[0].block_table)
slots = slots_of(table, 0, held, block_size)
written = [slot for call in ours for slot in call.slots]
print("block table:", *table)
print("slot mapping of call 1:", *ours[0].slots[:8], "...; of call 2:", *ours[1].slots)
stored, _ = llm.kv_cache.read(0, torch.tensor(slots, device=network.device))
apart = float((stored.transpose(0, 1) - keys[0]).abs().max())
print(f"layer 0's keys through the table: within {apart:.0e} of DynamicCache's")
assert written == slots and apart < 1e-3

# %% key="10-growth"
token_bytes = by_formula // held
show(cache_growth(theirs, ours, token_bytes))
assert [call.kv_bytes for call in theirs] == [call.held * token_bytes for call in theirs]
assert [call.kv_bytes for call in ours] == [
    math.ceil(call.held / block_size) * block_size * token_bytes for call in ours
]

# %% key="10-because-stairs"
because(
    "10.stairs",
    "The engine holds as much or more after every call. What does it gain by that?",
    explain=(
        "A block is taken whole, so up to 3 of its 4 slots wait for tokens. In return nothing ever "
        "**moves**: a new token is written beside the old ones. A tensor of exactly the right size "
        "has to be made anew for every token, as you will see below."
    ),
)

# %% key="10-past-map"
size = f"{cache_bytes(past):,} bytes, as calculated"
formula = "2 · layers · KV heads · head dim · bytes · tokens"
the_map.add("past_key_values", formula, PagedKVCache, size)
seen = f"{len(written)} slots written, as in the block table"
the_map.add("past_key_values.update(k, v)", "k_t, v_t for one more t", PagedKVCache.write, seen)

# %% [markdown] key="10-past-change" lang="en"
# **Change it.** Set `block_size = 16` where `n` and `k` are set, and run from there again. What is
# left of the staircase, and how many slots stay empty after the last call?

# %% [markdown] key="10-batch-prose" lang="en"
# ## Experiment 3: `batch_size`
#
# Four prompts of different lengths. transformers needs a rectangle, so short rows are filled up:
# on the **left**, since the last column must hold every row's last token.

# %% key="10-batch"
lengths = (40, 12, 24, 6)
prompts = [
    held_out_prompts(tokenizer, count=1, num_tokens=length, seed=seed)[0]
    for seed, length in enumerate(lengths)
]
pad = tokenizer.eos_token_id  # this tokenizer has no token of its own for padding
batch = left_padded([each["prompt_token_ids"] for each in prompts], pad)
for name, tensor in batch.items():
    print(f"{name:<15}{tuple(tensor.shape)}  last row: ...", *tensor[-1, -8:].tolist())

# %% key="10-predict-mask"
wrong = ["none", "1", "2", "3", "all 4"]
question = "If you forget attention_mask, how many of the four answers change?"
predict("10.mask", question, choices=wrong, default="all 4")

# %% key="10-predict-positions"
question = "Mask right, but positions count the padding too: 0, 1, 2 ... from each row's left edge?"
predict("10.positions", question, choices=wrong, default="3")

# %% key="10-batch-run"
rectangle = {name: batch[name].to(network.device) for name in ("input_ids", "attention_mask")}
with forward_calls(network) as theirs:
    answers = network.generate(**rectangle, **settings)[:, max(lengths) :].tolist()
llm = LLM(model)
with engine_calls(llm) as ours:
    outputs = llm.generate(prompts, params)
right = [list(each.outputs[0].token_ids) for each in outputs]
for call, own in list(zip(theirs, ours, strict=True))[:2]:
    print(f"transformers {call.shape}: {call.num_tokens} token ids; engine {own.shape}")
assert answers == right and len(theirs) == len(ours) == k

# %% [markdown] key="10-flat-prose" lang="en"
# The engine puts all tokens behind each other, in one row without a batch dimension. Which token
# belongs to whom is in the *segments* of its batch: a start, a length and a block table for each
# request.

# %% key="10-padding"
show(padding_map(lengths, theirs, ours))
padding = theirs[0].num_tokens - ours[0].num_tokens
print(f"{padding} of the {theirs[0].num_tokens} token ids in call 1 are padding")
assert theirs[0].num_tokens == len(lengths) * max(lengths)
assert ours[0].num_tokens == sum(lengths)
assert theirs[-1].held - ours[-1].held == padding  # it stays in the cache to the end

# %% [markdown] key="10-mistakes-prose" lang="en"
# Now the mistakes. transformers computes each without an error; about the first and the last it
# warns.

# %% key="10-mistakes"
longest = max(lengths)
columns = torch.arange(longest).expand(len(lengths), -1)
starts = torch.tensor([[length] for length in lengths])  # each row's next position
from_edge = batch | {"position_ids": columns}
rows = [each["prompt_token_ids"] for each in prompts]
in_right = torch.tensor([row + [pad] * (longest - len(row)) for row in rows]).to(network.device)
results = {
    "no attention_mask": network.generate(rectangle["input_ids"], **settings).tolist(),
    "positions with padding": padded_greedy(network, from_edge, k, starts * 0 + longest),
    "with, then without": padded_greedy(network, from_edge, k, starts),
    "padding on the right": network.generate(in_right, **settings).tolist(),
}

# %% key="10-mistakes-count"
changed = {
    name: [row for row in range(len(lengths)) if answers[row][-k:] != right[row]]
    for name, answers in results.items()
}
for name, rows in changed.items():
    print(f"{name:<23} {len(rows)} of {len(lengths)} answers change: rows {rows}")
assert padded_greedy(network, batch, k, starts) == right
assert all(0 not in rows for rows in changed.values())  # the longest row has no padding

# %% key="10-reveal-mask"
reveal("10.mask", wrong[len(changed["no attention_mask"])])
assert changed["no attention_mask"] == [1, 2, 3]

# %% key="10-reveal-positions"
reveal("10.positions", wrong[len(changed["positions with padding"])])
assert changed["positions with padding"] == [] and changed["with, then without"]

# %% key="10-because-positions"
because(
    "10.rotary",
    "Shifted positions did no harm here, shifted and then unshifted ones did. Why?",
    explain=(
        "This model turns queries and keys by their position (RoPE), and a score depends on the "
        "**difference** of two positions only. A row that is shifted as a whole keeps all "
        "differences. If new tokens are counted otherwise than the prompt, the distances between "
        "them are wrong. With learned absolute positions, as in GPT-2, a shift alone changes the "
        "result: the exercise has such a model."
    ),
)

# %% key="10-batch-map"
count = f"{theirs[0].num_tokens} token ids against {ours[0].num_tokens}"
formula = "rows · longest, against the sum of lengths"
the_map.add(
    "batch_size", formula, ModelRunner.run, f"{k} calls for {len(lengths)} requests; {count}"
)
seen = f"without it {len(changed['no attention_mask'])} answers change"
the_map.add("attention_mask", "token t sees 1 to t of its row", BatchMetadata, seen)
seen = f"mixed up, {len(changed['with, then without'])} answers change"
the_map.add("position_ids", "t, counted without padding", Segment, seen)

# %% [markdown] key="10-map-prose" lang="en"
# ## The map
#
# Each row was asserted in a cell above.

# %% key="10-map"
the_map

# %% [markdown] key="10-belief-prose" lang="en"
# ## Three misconceptions, refuted by running them

# %% key="10-belief-once"
belief = misconception("10.generate-once")
belief

# %% key="10-refute-once"
belief.refute()

# %% key="10-belief-attention"
belief = misconception("10.attention-only")
belief

# %% key="10-refute-attention"
belief.refute()

# %% key="10-belief-independent"
belief = misconception("10.independent-rows")
belief

# %% key="10-refute-independent"
belief.refute()

# %% [markdown] key="10-worse-prose" lang="en"
# ## What these made worse
#
# A `DynamicCache` holds exactly its tokens. To add one, it makes new tensors and copies all rows
# into them, in every layer and every call. We compare the addresses of the memory before and after
# a call.

# %% key="10-worse"
old = [tensor for layer in past.layers for tensor in (layer.keys, layer.values)]
old_bytes, pool = cache_bytes(past), llm.kv_cache.keys[0].data_ptr()
PastModel(network)(output.sequences[:, -1:], past)  # one more decode call
new = [tensor for layer in past.layers for tensor in (layer.keys, layer.values)]
llm.generate(prompt, params)
moved = sum(a.data_ptr() != b.data_ptr() for a, b in zip(old, new, strict=True))
print(f"DynamicCache: {moved} of {len(old)} tensors are new, {old_bytes:,} bytes were copied")
print("our engine: the tensors of before; a call writes one slot in each")
assert moved == len(old) and llm.kv_cache.keys[0].data_ptr() == pool

# %% [markdown] key="10-worse-padding" lang="en"
# And padding is paid for in each call: its keys and values stay in the cache, and attention
# computes their scores before the mask removes them. The engine pays with an indirection: its
# attention finds every key through a block table.

# %% [markdown] key="10-whatif-prose" lang="en"
# ## What if it were an 8B model and 32 prompts?
#
# The formulas again, first against the batch of above. Then for prompts between 100 and 4,000
# tokens, all calculated: the arithmetic of the prefill, and the memory of the KV cache.

# %% key="10-whatif-test"
padded, flat = len(lengths) * max(lengths), sum(lengths)
print(f"{padded * token_bytes:,} bytes padded by formula, {theirs[0].kv_bytes:,} in the tensors")
assert padded * token_bytes == theirs[0].kv_bytes

# %% key="10-whatif"
eight, gpu = ModelSize.llama3_8b(), GPUS["H100"]
for name, spread in (
    ("all alike", [2000] * 32),
    ("spread", range(100, 4100, 125)),
    ("one long", [100] * 31 + [4000]),
):
    padded, flat = len(spread) * max(spread), sum(spread)
    times = [2 * eight.parameters * count / gpu.flops for count in (padded, flat)]
    gib = [eight.kv_bytes(count) / 2**30 for count in (padded, flat)]
    print(f"{name:<9} padded {times[0]:4.1f} s, {gib[0]:4.1f} GiB; ", end="")
    print(f"without {times[1]:4.1f} s, {gib[1]:4.1f} GiB: {padded / flat:.1f} times")
    assert padded >= flat

# %% [markdown] key="10-whatif-change" lang="en"
# **Change it.** Sort the 32 spread prompts by length and cut them into 4 batches of 8. How much
# padding is left (calculate it), and which requests have to wait for that?

# %% key="10-quiz"
quiz("10.calls")

# %% key="10-footer" tags=["hide"]
footer("10_code_formula_map")
