# %% key="03-header" tags=["hide"]
from llmserve_lab.course import header

header("03_prefill")

# %% [markdown] key="03-problem" lang="en"
# ## The problem
#
# A prompt is known before the model starts. So *prefill* runs all its tokens through the model at
# once. In every layer each token looks at the tokens before it:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^T}{\sqrt d}\right)V$$
#
# - $n$: prompt length in tokens. $Q$, $K$, $V$ have one row for each token.
# - $d$: numbers in a row of one head.
#
# $QK^T$ has $n \times n$ entries. How much of the prefill's time is that?

# %% key="03-imports"
from math import ceil

import torch

from llmserve_lab import LLM, SamplingParams, load, measure_peak, plots
from llmserve_lab.course import because, footer, guess_for, misconception, predict, quiz, reveal
from llmserve_lab.course.counted import counted_flops
from llmserve_lab.course.dimensions import PUBLISHED, Dimensions
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.late_arrival import arrive_late
from llmserve_lab.course.layer_pass import layer_pass
from llmserve_lab.course.prefill_times import fit_curve, prefill_seconds
from llmserve_lab.plots import show
from llmserve_lab.simulate import GPUS, ModelSize

# %% key="03-model"
torch.set_grad_enabled(False)  # nothing is trained here
model = load("lab-target", dtype="float32")  # so that equal means equal, on a GPU too
text = "def read(self, size):\n    return self.file.read(size)"
prompt = model.tokenizer(text)["input_ids"]
texts = [model.tokenizer.decode([token]) for token in prompt]
print(len(prompt), "tokens:")
print(*map(repr, texts[:9]))
print(*map(repr, texts[9:]))

# %% [markdown] key="03-hand-prose" lang="en"
# ## Experiment 1: one layer of attention, by hand
#
# You compute what layer 2 of the bundled model computes, from its own weights. `layer_pass` runs
# the model once over the prompt and keeps what this layer got and what it gave.

# %% key="03-predict-rows"
question = "Replace the 5th of the 17 tokens. How many of the 17 rows that layer 2 gives change?"
predict("03.rows", question, low=1, high=17, step=1, unit="rows")

# %% key="03-pass"
layer = 2
seen = layer_pass(model, prompt, layer)
config = model.model.config
heads, kv_heads, d = config.num_attention_heads, config.num_key_value_heads, config.head_dim
print("the layer got", tuple(seen.hidden.shape), " (tokens, hidden)")
print(heads, "heads for queries,", kv_heads, "for keys and values, head dimension", d)


# %% key="03-qkv"
def project(linear, count):
    """One row for each token and head: (heads, tokens, head dim)."""
    return linear(seen.hidden).view(len(prompt), count, d).transpose(0, 1)


q = seen.rotated(project(seen.attention.q_proj, heads))  # turned by each token's position (RoPE)
k = seen.rotated(project(seen.attention.k_proj, kv_heads))
v = project(seen.attention.v_proj, kv_heads)
print("Q", tuple(q.shape), " K", tuple(k.shape), " V", tuple(v.shape))

# %% key="03-scores"
k, v = (each.repeat_interleave(heads // kv_heads, dim=0) for each in (k, v))  # 2 queries share one
scores = q @ k.mT / d**0.5
print("scores", tuple(scores.shape), " (heads, query, key)")

# %% [markdown] key="03-mask-prose" lang="en"
# The *causal mask* forbids a token to look at a later one. A score of $-\infty$ becomes a weight of
# exactly 0, and each row of weights sums to 1.

# %% key="03-mask"
n = len(prompt)
future = torch.ones_like(scores[0], dtype=torch.bool).triu(diagonal=1)
weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
print(f"{n * n} scores a head, {int((~future).sum())} of them used")
assert torch.allclose(weights.sum(-1), torch.ones_like(weights[..., 0]))

# %% key="03-output"
mixed = (weights @ v).transpose(0, 1).flatten(1)  # the heads side by side again
output = seen.attention.o_proj(mixed)
largest = float((output - seen.output).abs().max())
print("output", tuple(output.shape), f" largest difference to the model's own: {largest:.1e}")
assert torch.allclose(output, seen.output, atol=1e-4)

# %% key="03-map"
show(plots.attention_map(weights, texts))

# %% key="03-change-token"
place = 4  # the 5th token
changed = [*prompt[:place], prompt[0], *prompt[place + 1 :]]
other = layer_pass(model, changed, layer)
differs = (other.output - seen.output).abs().amax(dim=-1) > 1e-4  # one answer for each row
print("changed rows:", [i + 1 for i in range(n) if differs[i]])
assert int(differs.sum()) == n - place

# %% key="03-rows-reveal"
reveal("03.rows", int(differs.sum()))

# %% key="03-rows-because"
because(
    "03.causal",
    "Why did the rows before the replaced token not change at all?",
    explain=(
        "A row takes from its own token and those before it, and that holds in **every** layer. So "
        "a row depends on earlier tokens only. Two things follow: all rows of a prompt can be "
        "computed together, and keys and values, once computed, stay right when more tokens come."
    ),
)

# %% [markdown] key="03-hand-change" lang="en"
# **Change it.** Set `layer = 0` and run from there. Step through the heads: which looks mostly at
# the token just before, and does any look mostly at the first token?

# %% [markdown] key="03-flops-prose" lang="en"
# ## Experiment 2: where does the curve bend?
#
# The linear layers do the same for each token: their work grows like $n$. The scores, and the
# weights times $V$, are $n \times n$: their work grows like $n^2$. For short prompts the first is
# larger. Somewhere they are equal.

# %% key="03-predict-crossover"
question = "From which prompt length on does attention take more operations than all linear layers?"
predict("03.crossover", question, low=16, high=65536, unit="tokens", log=True)


# %% key="03-formulas"
def linear_flops(sizes, n):
    """A multiplication and an addition per weight and token; the output layer for the last one."""
    return 2 * n * sizes.layer_weights + 2 * sizes.hidden * sizes.vocabulary


def attention_flops(sizes, n):
    """Two products, Q with K and the weights with V, of n x n entries, in every layer."""
    return 2 * 2 * n * n * sizes.hidden * sizes.num_layers


# %% key="03-counted"
lab = Dimensions.of("lab-target", model.model)
for n in (64, 256, 512):
    counted = counted_flops(model, n)
    print(f"{n:>3} tokens: {counted['linear']:>13,} linear  {counted['attention']:>13,} attention")
    assert counted == {"linear": linear_flops(lab, n), "attention": attention_flops(lab, n)}

# %% [markdown] key="03-counted-prose" lang="en"
# The formulas give what torch's own counter counted, to the last operation. From them follows the
# length at which attention overtakes.


# %% key="03-crossover"
def crossover(sizes):
    """The first length at which attention needs more operations than the linear layers."""
    return next(n for n in range(1, 10**6) if attention_flops(sizes, n) > linear_flops(sizes, n))


at = crossover(lab)
reveal("03.crossover", at)
assert attention_flops(lab, at - 1) <= linear_flops(lab, at - 1)

# %% [markdown] key="03-times-prose" lang="en"
# Now the clock: one pass over prompts of several lengths, through the model alone, since some are
# longer than its context. What it says there would be nonsense; how long it takes is not. Through
# the points goes the curve $a + b\,n + c\,n^2$ that fits best.

# %% key="03-times"
seconds = prefill_seconds(model, [64, 128, 256, 512, 1024, 1536, 2048])
curve = fit_curve(seconds)
for n, value in seconds.items():
    print(f"{n:>4} tokens: {1000 * value:6.1f} ms, {1000 * value / n:.3f} ms a token")

# %% key="03-times-figure"
show(plots.prefill_curve(seconds, curve, guess_for("03.crossover")))

# %% key="03-times-reading"
print(f"twice 128 tokens took {seconds[256] / seconds[128]:.1f} times as long, ", end="")
print(f"twice 1024 took {seconds[2048] / seconds[1024]:.1f} times")
print(f"operations are equal at {at} tokens, times at {curve.crossover:,.0f} (fitted)")

# %% key="03-bend-because"
because(
    "03.bend",
    "Counted and fitted crossover differ. What does the clock see that the count does not?",
    explain=(
        "The count holds all n x n pairs, also the masked half; a fused kernel leaves whole masked "
        "blocks out, so that attention's time stays behind. And the softmax is no matrix product: "
        "it is not in the count, but takes time. Operations tell the *shape* of the curve; how "
        "fast each kind runs, only the clock tells."
    ),
)

# %% [markdown] key="03-flops-change" lang="en"
# **Change it.** In a new cell, run `crossover(Dimensions.of("draft", load("lab-draft").model))`.
# The draft model is narrower and has fewer layers. Which of the two moves the crossover?

# %% [markdown] key="03-parallel-prose" lang="en"
# ## Experiment 3: the same prompt, token by token
#
# All rows of a prompt can be computed together. What if they are not? `max_num_batched_tokens`
# limits how many tokens one step of the engine may run. With 1, it reads the prompt as if it were
# decoding.

# %% key="03-predict-factor"
question = "256 tokens one by one instead of in one step: how many times as long, on this machine?"
predict("03.factor", question, low=1, high=300, unit="times", log=True)

# %% key="03-read"
(long_prompt,) = held_out_prompts(model.tokenizer, count=1, num_tokens=256)
one_token = SamplingParams(temperature=0, max_tokens=1, logprobs=-1)  # with every logprob


def read(budget):
    llm = LLM(model, max_num_batched_tokens=budget)
    llm.generate("import os", one_token)  # the first run also warms up
    llm.reset_metrics()
    (output,) = llm.generate(long_prompt, one_token)
    m = llm.metrics
    print(f"{m.steps:>3} steps, {m.flops:,} operations, ", end="")
    print(f"{m.num_bytes / 1e6:5.0f} MB moved, {m.seconds:.3f} s")
    return m, output.outputs[0].logprobs[0]


# %% key="03-read-both"
together, logprobs = read(budget=256)
apart, other_logprobs = read(budget=1)
worst = max(abs(logprobs[t].logprob - other_logprobs[t].logprob) for t in logprobs)
print(f"largest difference over {len(logprobs)} logprobs of the next token: {worst:.1e}")
assert worst < 1e-3
assert (together.steps, apart.steps) == (1, 256)
assert together.flops == apart.flops and apart.num_bytes > 100 * together.num_bytes

# %% key="03-ratios"
factor = apart.seconds / together.seconds
counted = {
    "operations": apart.flops / together.flops,
    "steps": apart.steps / together.steps,
    "bytes moved": apart.num_bytes / together.num_bytes,
}
axis, title = "one by one / all at once", "What does it cost to read a prompt token by token?"
show(plots.cost_ratios(counted, {"time": factor}, axis, title))

# %% key="03-factor-reveal"
reveal("03.factor", factor)

# %% key="03-factor-reading"
floor = apart.num_bytes / measure_peak(dtype=model.model.dtype).bytes_per_second
print(f"moving {apart.num_bytes / 1e9:.1f} GB at this machine's memory bandwidth: {floor:.2f} s")
print(f"the {apart.steps} steps took {apart.seconds:.2f} s")

# %% key="03-parallel-because"
because(
    "03.parallel",
    "Not one operation more, and yet it took so much longer. What is done 256 times now?",
    explain=(
        "Every step reads **all** weights and pays the fixed cost of a step; the larger a model, "
        "the more of its time is the reading. In one pass a weight is read once and used for 256 "
        "rows, which do not wait for each other: that is the parallelism that a GPU, or a "
        "processor's vector units, can use."
    ),
)

# %% [markdown] key="03-parallel-change" lang="en"
# **Change it.** Call `read(budget=16)`. Its 16 steps take how many times as long as one? From which
# budget on does a larger one gain little?

# %% [markdown] key="03-chunk-prose" lang="en"
# ## Experiment 4: a long prompt comes while others decode
#
# A step ends for all its requests together. A prompt of 768 tokens in one step makes everyone else
# wait. *Chunked prefill* cuts it: a step holds at most `max_num_batched_tokens` tokens. Those who
# decode come first, with one token each; the prompt gets what is left.

# %% key="03-predict-chunks"
question = (
    "4 requests decode, a step holds 64 tokens. In how many steps are 768 prompt tokens read?"
)
predict("03.chunks", question, choices=[4, 12, 13, 16], default=12)

# %% key="03-chunks"
others = held_out_prompts(model.tokenizer, count=4, num_tokens=32)
(newcomer,) = held_out_prompts(model.tokenizer, count=1, num_tokens=768, seed=1)
runs = [arrive_late(model, others, newcomer, budget) for budget in (1024, 256, 64, 32)]
for run in runs:
    print(run)
    assert run.prefill_steps == ceil(768 / (run.budget - len(others)))
    assert all(len(step.sampled) >= len(others) for step in run.steps)  # each gap is one step

# %% key="03-chunks-equal"
for versions in zip(*(run.tokens for run in runs), strict=True):  # one request, at each budget
    shortest = min(map(len, versions))
    assert len({tokens[:shortest] for tokens in versions}) == 1
print("every request got the same tokens at every budget")

# %% key="03-chunks-figure"
show(plots.arrival_steps(runs))

# %% key="03-chunks-reveal"
reveal("03.chunks", runs[2].prefill_steps)

# %% key="03-chunks-because"
because(
    "03.chunked",
    "At every budget the others get a token in each step. What does a smaller one change?",
    explain=(
        "Counted in steps the gap is always 1. But a step lasts as long as its tokens take: with "
        "all 768 prompt tokens in one, four readers see their text stop. A budget caps the tokens "
        "of a step, and with it the longest gap. Tokens stay the same, because each chunk attends "
        "to the keys and values that the chunks before it left in the cache."
    ),
)

# %% [markdown] key="03-chunks-change" lang="en"
# **Change it.** Use `count=24` for `others` and keep the budgets. At 32 tokens a step, how many are
# left for the prompt? What becomes of its first token?

# %% [markdown] key="03-worse-prose" lang="en"
# ## What chunking made worse
#
# From the same runs: what the newcomer and the machine pay for the short gaps of the others. Each
# chunk reads the weights again, and the keys and values of all chunks before it. On a processor,
# arithmetic hides much of that reading, so the newcomer's time grows less than the bytes.

# %% key="03-worse"
whole = runs[0]
for run in runs:
    print(f"budget {run.budget:>4}: {run.prefill_steps:>2} steps, ", end="")
    print(f"{run.num_bytes / whole.num_bytes:4.1f} times the bytes, ", end="")
    print(f"{run.first_token_ms / whole.first_token_ms:3.1f} times the TTFT")
moved = [run.num_bytes for run in runs]
assert moved == sorted(moved) and moved[-1] > 10 * moved[0]

# %% [markdown] key="03-belief-prose" lang="en"
# ## Two misconceptions, refuted by running them

# %% key="03-belief-sequential"
belief = misconception("03.prefill-is-sequential")
belief

# %% key="03-refute-sequential"
belief.refute()

# %% key="03-belief-attention"
belief = misconception("03.attention-dominates")
belief

# %% key="03-refute-attention"
belief.refute()

# %% [markdown] key="03-whatif-prose" lang="en"
# ## What if the model were 7B or 70B?
#
# The formulas matched the counter on `lab-target`. Larger models have the same parts, only wider:
# their published dimensions are enough. First a test of these: do they give the published number of
# parameters?

# %% key="03-whatif-test"
known = ModelSize.llama2_7b(), ModelSize.llama3_8b(), ModelSize.llama3_70b()
for sizes, published in zip(PUBLISHED, known, strict=True):
    print(f"{sizes.name:<13} {sizes.parameters:>14,} parameters, crossover {crossover(sizes):>6,}")
    assert sizes.parameters == published.parameters


# %% key="03-whatif-figure"
def share_of(sizes):
    def share(n):
        return attention_flops(sizes, n) / (attention_flops(sizes, n) + linear_flops(sizes, n))

    return share


every = (lab, *PUBLISHED)
show(
    plots.attention_share(
        {s.name: share_of(s) for s in every}, {s.name: crossover(s) for s in every}
    )
)

# %% key="03-whatif-ttft"
sizes, gpu = PUBLISHED[0], GPUS["A100"]
print(f"{sizes.name} on an {gpu.name}, at least (calculated):")
for n in (1024, 8192, 65536):
    total = linear_flops(sizes, n) + attention_flops(sizes, n)
    print(f"{n:>6,} tokens: {total / gpu.flops:5.2f} s")
wider = [crossover(sizes) / sizes.hidden for sizes in every]
assert all(5.5 < ratio < 7 for ratio in wider)  # so it grows with the width of the model

# %% [markdown] key="03-whatif-change" lang="en"
# The crossover is about six times the model's width, whatever the number of layers. These counts
# hold all pairs: a kernel that skips the masked half moves it to twice the length.
#
# **Change it.** Take `PUBLISHED[2]`, the 70B model. By how much does the time at 1,024 tokens
# grow, by how much at 65,536, and why not equally?

# %% key="03-quiz"
quiz("03.prefill")

# %% key="03-footer" tags=["hide"]
footer("03_prefill")
