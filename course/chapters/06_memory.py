# %% key="06-header" tags=["hide"]
from llmserve_lab.course import header

header("06_memory")

# %% [markdown] key="06-problem" lang="en"
# ## The problem
#
# A model that serves needs memory for three things:
#
# $$\text{memory} = \text{model} + \text{KV cache} + \text{activation}$$
#
# - **model**: its parameters.
# - **KV cache**: attention's keys and values, of every token that a request has so far.
# - **activation**: intermediate results of the step that runs now.
#
# A GPU's memory is fixed. It bounds how many requests can share a batch. Here you calculate all
# three, and hold them against what is really allocated.

# %% key="06-imports"
from copy import deepcopy
from math import ceil

import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal
from llmserve_lab.course.allocations import allocations
from llmserve_lab.course.architectures import PUBLISHED, Architecture, published
from llmserve_lab.course.experiments import MIB, held_out_prompts
from llmserve_lab.course.memory_calculator import memory_calculator
from llmserve_lab.course.shortened import shortened
from llmserve_lab.plots import context_growth, memory_bars, show
from llmserve_lab.simulate import GPUS

# %% key="06-model"
model = load("lab-target", dtype="float32")  # the same bytes on every machine
dims = Architecture.of("lab-target", model.model.config)
device, value_bytes = model.model.device, model.model.dtype.itemsize
LLM(model).generate("warm up", SamplingParams(max_tokens=2))
print(f"{dims.num_layers} layers, hidden width {dims.hidden}, MLP width {dims.mlp_width},")
print(f"{dims.num_heads} heads, {dims.num_kv_heads} KV heads of {dims.head_dim} values,")
print(f"{dims.parameters:,} parameters of {value_bytes} bytes")

# %% [markdown] key="06-parts-prose" lang="en"
# ## Experiment 1: the three parts, measured
#
# 64 requests of 128 tokens each shall fit, and 2,048 tokens be computed in one pass. `allocations`
# watches torch while a block of code runs: the memory of every tensor, from the operator that makes
# it until it is released.

# %% key="06-predict-largest"
parts = {"weights": "the weights", "kv": "the KV cache", "activation": "activation"}
question = "Which of the three will take most memory on this small model?"
predict("06.largest", question, choices=list(parts.values()), default="the weights")

# %% key="06-weights"
with allocations() as weights:
    second = deepcopy(model.model)
del second
print(f"weights: a second copy of the model took {weights.kept / MIB:.2f} MiB")

# %% key="06-kv"
requests, length = 64, 128
num_blocks = requests * ceil(length / 16)
with allocations() as kv:
    llm = LLM(model, num_blocks=num_blocks)
print(f"KV cache: an engine with {num_blocks} blocks of 16 tokens took {kv.kept / MIB:.2f} MiB")


# %% key="06-activation"
def one_pass(loaded, rows, tokens_each):
    """Bytes at the peak of one pass over `rows` prompts; the last token of each gets logits."""
    ids = torch.ones(rows, tokens_each, dtype=torch.int64, device=device)
    with torch.inference_mode(), allocations() as seen:
        loaded.model(input_ids=ids, use_cache=False, logits_to_keep=1)
    return seen.peak


activation = one_pass(model, rows=16, tokens_each=128)
print(f"activation: a pass over 2,048 tokens held {activation / MIB:.2f} MiB at its peak")

# %% [markdown] key="06-formula-prose" lang="en"
# Now the same by formula. A token's KV is $2 \cdot \text{layers} \cdot \text{KV heads} \cdot
# \text{head dim}$ numbers. Activation peaks inside *one* layer's MLP: per token, three times its
# width and four times the hidden width are held at once. Or it peaks at the end, where each request
# gets a logit for every word of the vocabulary.

# %% key="06-calculated"
in_layer = 3 * dims.mlp_width + 4 * dims.hidden
at_end = dims.vocabulary + dims.hidden
kv_token = 2 * dims.num_layers * dims.num_kv_heads * dims.head_dim * value_bytes
calculated = {
    "weights": dims.parameters * value_bytes,
    "kv": num_blocks * 16 * kv_token,
    "activation": max(2048 * in_layer, 16 * at_end) * value_bytes,
}
measured = {"weights": weights.kept, "kv": kv.kept, "activation": activation}
for part, size in measured.items():
    print(f"{part:>10}: {size:>11,} bytes measured, {calculated[part]:>11,} calculated")
    assert abs(calculated[part] / size - 1) < 0.05

# %% key="06-parts-figure"
show(memory_bars({"measured": measured, "calculated": calculated}))

# %% key="06-reveal-largest"
reveal("06.largest", parts[max(measured, key=measured.get)])

# %% key="06-because-parts"
because(
    "06.parts",
    "The weights are the same for one request or for 64. Why is the KV cache not?",
    explain=(
        "Every request reads the **same** weights, so one copy serves all. Keys and values belong "
        "to one request's own tokens: each of them adds a row in every layer, and the row stays "
        "until the request is done. So the KV cache grows with batch times context."
    ),
)

# %% [markdown] key="06-parts-change" lang="en"
# **Change it.** Set `requests, length = 16, 128` and run from there again. Which of the three bars
# moves, and which two stay?

# %% [markdown] key="06-layers-prose" lang="en"
# ## Experiment 2: what activation depends on
#
# Weights and KV cache are sums over the layers. We cut the model to the first three of its six
# layers and run the same pass. (It writes nonsense now; its bytes are real.)

# %% key="06-predict-layers"
question = "With half the layers, what happens to the activation peak of the same pass?"
outcomes = ["it halves", "it falls, but by less than half", "it stays the same"]
predict("06.layers", question, choices=outcomes, default=outcomes[1])


# %% key="06-layers"
def parts_of(loaded, rows, tokens_each):
    """Bytes of the weights, of a KV cache as large as before, and at the peak of a pass."""
    LLM(loaded, num_blocks=1)  # the first engine arranges the weights
    with allocations() as cache:
        engine = LLM(loaded, num_blocks=num_blocks)
    held = engine.model.num_parameters() * value_bytes
    peak = one_pass(loaded, rows, tokens_each)
    return {"weights": held, "kv": cache.kept, "activation": peak}


# %% key="06-layers-run"
rows = {
    "6 layers, 2,048 tokens": parts_of(model, 16, 128),
    "3 layers, 2,048 tokens": parts_of(shortened(model, num_layers=3), 16, 128),
    "6 layers, 512 tokens": parts_of(model, 4, 128),
    "6 layers, 64 tokens": parts_of(model, 64, 1),
}
six, three, quarter, last = (row["activation"] for row in rows.values())
for case, row in rows.items():
    print(f"{case:<22} {row['activation'] / MIB:6.2f} MiB of activation at the peak")

# %% key="06-layers-figure"
show(memory_bars(rows, title="What moves the activation peak?"))

# %% key="06-reveal-layers"
change = three / six
reveal("06.layers", outcomes[(change > 0.55) + (change > 0.95)])
assert three == six and 0.2 < quarter / six < 0.3

# %% key="06-because-layers"
because(
    "06.reuse",
    "Six layers compute twice what three do. Why do they not hold twice as much?",
    explain=(
        "Inference needs a layer's intermediate results only until the next layer has its input: "
        "then their memory is free and the next layer takes it. The peak is **one** layer's, and "
        "grows with the tokens in the pass. (Training keeps all layers', for the gradients.)"
    ),
)

# %% [markdown] key="06-decode-prose" lang="en"
# With 64 single tokens, as in a decode step of 64 requests, the peak lies elsewhere: they need
# little in a layer, but each gets a logit for every word of the vocabulary.

# %% key="06-decode"
print(f"64 tokens, by formula: {64 * in_layer * value_bytes:,} bytes in a layer,")
print(f"{64 * at_end * value_bytes:,} at the logits; {last:,} measured")
assert abs(64 * at_end * value_bytes / last - 1) < 0.05

# %% [markdown] key="06-step-prose" lang="en"
# The engine runs the same layers with code of its own, which may hold less at once but not more. So
# the formula is a bound for its steps. Real servers run their largest step once when they start,
# and look.

# %% key="06-step"
prompts = held_out_prompts(model.tokenizer, count=16, num_tokens=128)
for prompt in prompts:
    llm.add_request(prompt, SamplingParams(max_tokens=1))
with allocations() as engine_step:
    llm.step()
print(f"a step of the engine over 2,048 tokens: {engine_step.peak / MIB:.2f} MiB at its peak,")
print(f"by formula {calculated['activation'] / MIB:.2f}; {engine_step.kept} bytes stay after it")
assert engine_step.peak < 1.05 * calculated["activation"] and engine_step.kept == 0

# %% [markdown] key="06-models-prose" lang="en"
# ## Experiment 3: what one more token costs
#
# The weights are paid once, a token in every request. So at some length the KV cache outweighs the
# model.

# %% key="06-predict-tokens"
question = "How many tokens of KV cache take as much memory as all weights of lab-target?"
predict("06.tokens", question, low=100, high=1_000_000, unit="tokens", log=True)

# %% key="06-tokens"
tokens = ceil(weights.kept / kv_token)
with allocations() as enough:
    llm = LLM(model, num_blocks=ceil(tokens / 16))
print(f"{tokens:,} tokens of {kv_token:,} bytes: {enough.kept / MIB:.2f} MiB measured,")
print(f"against {weights.kept / MIB:.2f} MiB of weights")
assert abs(enough.kept / weights.kept - 1) < 0.05

# %% key="06-reveal-tokens"
reveal("06.tokens", tokens)

# %% [markdown] key="06-published-prose" lang="en"
# The same formula for published models, each built from the dimensions in its `config.json` on
# torch's *meta* device, which counts parameters and allocates nothing. All of it is calculated,
# with 2 bytes a number.

# %% key="06-published"
print(f"{'':<17}attention  KV heads  weights   a token's KV")
for name in PUBLISHED:
    a = published(name)
    heads = f"{a.num_heads} -> {a.num_kv_heads}" if not a.latent else f"latent {a.latent}"
    size = f"{2 * a.parameters / 2**30:7.1f} GiB"
    print(f"{name:<17}{a.attention:<6}{heads:>13}{size}{2 * a.kv_values / 1024:9.1f} KiB")
old, new = published("Llama-2-7B"), published("Llama-3.1-8B")
assert old.num_layers == new.num_layers and old.kv_values == 4 * new.kv_values

# %% key="06-growth"
kinds = ["Llama-2-7B", "Llama-3.1-8B", "DeepSeek-V2-Lite", "Falcon-7B"]
sizes = {f"{name} ({published(name).attention})": published(name) for name in kinds}
show(context_growth({name: (2 * a.parameters, 2 * a.kv_values) for name, a in sizes.items()}))

# %% key="06-because-gqa"
because(
    "06.gqa",
    "Both Llamas have 32 layers and 32 heads. Why does a token of the older one take four times "
    "as much?",
    explain=(
        "Llama-2-7B keeps a key and a value for each of its 32 heads (MHA). In Llama-3.1-8B four "
        "query heads share one KV head (GQA): 8 are kept. Falcon-7B's heads all share one (MQA). "
        "DeepSeek keeps one compressed vector a token in their place (MLA)."
    ),
)

# %% [markdown] key="06-growth-change" lang="en"
# **Change it.** Add `"Qwen2.5-7B"` to `kinds`. It has 7 billion parameters too: where does its line
# lie, and which two of its dimensions put it there?

# %% [markdown] key="06-fit-prose" lang="en"
# ## Experiment 4: which batch fits
#
# Suppose a GPU with 64 MiB. It serves requests of 128 prompt and 64 output tokens, 512 tokens in a
# step at most. For activation we keep 5% more than calculated, and what is left goes to the KV
# cache, in whole blocks of 16 tokens: 96 KiB each here.

# %% key="06-predict-fit"
question = "How many such requests can run together, and none is ever sent back to the queue?"
predict("06.fit", question, low=1, high=64, step=1, unit="requests", default=20)

# %% key="06-fit"
capacity, chunk, length = 64 * MIB, 512, 128 + 64
room = capacity - calculated["weights"] - 1.05 * chunk * in_layer * value_bytes
blocks = int(room // (16 * kv_token))
largest = blocks // ceil(length / 16)
print(f"{room / MIB:.1f} MiB are left: {blocks} blocks; a request grows to {ceil(length / 16)},")
print(f"so {largest} fit together, by calculation")


# %% key="06-serve"
def serve(batch):
    """`batch` requests at once on the calculated blocks: bytes, and how often one was sent back."""
    engine = LLM(model, max_num_batched_tokens=chunk, num_blocks=blocks)
    for prompt in prompts_128[:batch]:
        engine.add_request(prompt, params_64)
    with allocations() as seen:
        engine.step()
    while engine.has_work:
        engine.step()
    held = engine.metrics.peak_kv_blocks_used * engine.capacity.block_bytes
    row = {"weights": weights.kept, "kv": held, "activation": seen.peak}
    return row, engine.metrics.preemptions


# %% key="06-serve-run"
prompts_128 = held_out_prompts(model.tokenizer, count=40, num_tokens=128)
params_64 = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
served = {batch: serve(batch) for batch in (16, largest, largest + 1, 40)}
for batch, (row, sent_back) in served.items():
    print(f"batch {batch}: {sum(row.values()) / MIB:5.1f} MiB, {sent_back} sent back to the queue")

# %% key="06-fit-figure"
rows = {f"batch {batch}": row for batch, (row, _) in served.items()}
show(memory_bars(rows, title="Which batch fits into 64 MiB?", capacity=capacity))

# %% key="06-reveal-fit"
reveal("06.fit", max(batch for batch, (_, sent_back) in served.items() if sent_back == 0))
assert served[largest][1] == 0 < served[largest + 1][1]
assert all(sum(row.values()) <= capacity for row, _ in served.values())

# %% key="06-because-fit"
because(
    "06.whole-blocks",
    "With a batch of 40 the memory does not overflow. What happens instead?",
    explain=(
        "The engine never takes more blocks than it has. When all are in use and a request needs "
        "one more, the latest request gives its blocks back and is computed again later. So a "
        "batch that does not fit costs work in place of memory."
    ),
)

# %% [markdown] key="06-belief-prose" lang="en"
# ## Two misconceptions, refuted by running them

# %% key="06-belief-context"
belief = misconception("06.context-is-free")
belief

# %% key="06-refute-context"
belief.refute()

# %% key="06-belief-moe"
belief = misconception("06.moe-active")
belief

# %% key="06-refute-moe"
belief.refute()

# %% [markdown] key="06-worse-prose" lang="en"
# ## What saving memory made worse
#
# Fewer tokens in a step lower the activation peak, and more requests fit beside it. But a prompt
# then needs more steps, and each of them reads all weights again.

# %% key="06-worse"
long = held_out_prompts(model.tokenizer, count=1, num_tokens=1000)
for tokens_in_step in (2048, 512, 128):
    peak = tokens_in_step * in_layer * value_bytes
    fit = (capacity - calculated["weights"] - peak) // (16 * kv_token) // ceil(length / 16)
    engine = LLM(model, max_num_batched_tokens=tokens_in_step)
    engine.generate(long, SamplingParams(max_tokens=1))
    print(f"{tokens_in_step:>5} tokens in a step: {peak / MIB:4.1f} MiB at the peak, {fit:>2} fit;")
    print(f"      1,000 prompt tokens take {engine.metrics.steps} step(s) to the first token")
    assert engine.metrics.steps == ceil(1000 / tokens_in_step)

# %% [markdown] key="06-whatif-prose" lang="en"
# ## What if it were a real GPU?
#
# The formulas fitted the measurements, so now they may leave this machine: everything below is
# *calculated*. Activation is that of 2,048 tokens in 16 bits; a tenth of the memory stays free for
# the driver and for what is not counted here.


# %% key="06-plan"
def plan(model, gpu, weight_bits, kv_bits, context, batch):
    a = published(model)
    weights = a.parameters * weight_bits / 8
    activation = a.activation_values(num_tokens=2048, num_sampled=batch) * 2
    request = ceil(context / 16) * 16 * a.kv_values * kv_bits / 8
    usable = 0.9 * GPUS[gpu].memory_gib * 2**30
    room = max(0, usable - weights - activation)
    return {
        "weights": weights,
        "kv": batch * request,
        "activation": activation,
        "usable": usable,
        "largest_batch": room // request,
    }


# %% key="06-calculator"
memory_calculator(plan, list(PUBLISHED), list(GPUS), model="Llama-2-7B", gpu="A100")

# %% [markdown] key="06-whatif-change" lang="en"
# **Change it.** By keyboard or mouse: which model lets most requests of 4,096 tokens share an A100?
# What does twice the context do to the largest batch? On which GPU does Mixtral fit in 16 bits, and
# what does an 8-bit KV cache change for Llama-2-7B and for Falcon-7B?

# %% key="06-whatif-reading"
case = {"weight_bits": 16, "kv_bits": 16, "context": 4096, "batch": 1}
most = {name: int(plan(name, "A100", **case)["largest_batch"]) for name in PUBLISHED}
print("largest batch at 4,096 tokens on one A100, calculated:")
print(*(f"  {name:<17}{batch:>5}" for name, batch in most.items()), sep="\n")
double = plan("Llama-2-7B", "A100", **{**case, "context": 8192})["largest_batch"]
print(f"Llama-2-7B at 8,192 tokens: {double:.0f} instead of {most['Llama-2-7B']}")
assert most["Falcon-7B"] > most["Qwen2.5-7B"] > most["Llama-3.1-8B"] > most["Llama-2-7B"]
assert double == most["Llama-2-7B"] // 2 and most["Mixtral-8x7B"] == most["DeepSeek-V3"] == 0

# %% key="06-quiz"
quiz("06.fit")

# %% key="06-footer" tags=["hide"]
footer("06_memory")
