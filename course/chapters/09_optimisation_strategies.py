# %% key="09-header" tags=["hide"]
from llmserve_lab.course import header

header("09_optimisation_strategies")

# %% [markdown] key="09-problem" lang="en"
# ## The problem
#
# Four strategies speed up inference: **continuous batching**, **KV cache reuse**, **quantization**
# and **speculative decoding**. All of them work at one place of the same road:
#
# *request queue* → *batch scheduler* → *GPU inference*
#
# Each saves one thing: places in a batch, prompt tokens, bytes, or passes of the model. You switch
# each on alone, then all together, on the same requests, and read off what moves and what does not.

# %% key="09-imports"
from llmserve_lab import LLM, PromptLookup, load, plots
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal, strategies
from llmserve_lab.course.strategies import (
    CONTINUOUS,
    QUANTIZED,
    REUSE,
    SPECULATIVE,
    STRATEGIES,
    serve_with,
)
from llmserve_lab.kv_cache import KVShape
from llmserve_lab.plots import show
from llmserve_lab.simulate import GPUS, Deployment, ModelSize, StepLoad
from llmserve_lab.speculative import expected_tokens

# %% [markdown] key="09-flow-prose" lang="en"
# ## Experiment 1: the road, without any strategy
#
# Twelve requests wait. Each begins with the same 64 tokens, as instructions do, and has 16 of its
# own. The answers differ in length. A batch has 4 places and is *static*: it starts with 4
# requests, and nobody joins before the longest is done.

# %% key="09-requests"
tokenizer = load("lab-target", "float32").tokenizer
prompts = strategies.shared_prefix_requests(tokenizer, count=12, shared=64, own=16)
lengths = [4, 28, 8, 20, 6, 16, 32, 8, 10, 24, 4, 12]
params = strategies.greedy_lengths(lengths)
print(len(prompts), "prompts of", len(prompts[0]["prompt_token_ids"]), "tokens;", end=" ")
print(sum(lengths), "tokens to generate")

# %% key="09-predict-places"
question = "4 places in each step: in what share of them does a request run?"
predict("09.places", question, low=0, high=100, unit="%")

# %% key="09-none"
none = serve_with((), prompts, params, "none")
print(none)
places = 4 * none.steps
used = sum(len(step.scheduled) for step in none.trace)
print(f"{used} of {places} places were used, for {none.output_tokens} tokens")
assert none.steps == sum(max(lengths[i : i + 4]) for i in (0, 4, 8))  # each batch's longest
assert used == none.output_tokens

# %% key="09-flow"
show(plots.serving_flow(none.trace))

# %% [markdown] key="09-flow-keys" lang="en"
# Step with the arrow keys. On the left the queue, in the middle what the scheduler put into the
# step, on the right what came out. Where in the run do places stay empty while others wait?

# %% key="09-places-reveal"
reveal("09.places", 100 * used / places)

# %% [markdown] key="09-flow-change" lang="en"
# **Change it.** Sort the answers: `lengths = sorted(lengths)` before `params`. Now the requests of
# a batch are alike. How many steps does it take, and how many places stay empty? (A server cannot
# know the lengths beforehand.)

# %% [markdown] key="09-alone-prose" lang="en"
# ## Experiment 2: each strategy alone
#
# - *Continuous batching*: whoever is done makes room at once.
# - *KV cache reuse*: the shared 64 tokens are computed once, and the 11 others find them.
# - *Quantization*: weights of the linear layers and the KV cache in 8 bits.
# - *Speculative decoding*: `lab-draft` guesses 4 tokens, the model checks all in one pass.

# %% key="09-predict-steps"
question = "Which one, switched on alone, saves most steps?"
predict("09.steps", question, choices=[*STRATEGIES], default=CONTINUOUS)

# %% key="09-predict-more"
question = "Which one makes the model compute more tokens than without?"
predict("09.more", question, choices=[*STRATEGIES, "none of them"], default="none of them")

# %% key="09-alone"
alone = [serve_with((name,), prompts, params, name) for name in STRATEGIES]
for run in (none, *alone):
    print(run)

# %% key="09-alone-assert"
by_name = {run.name: run for run in alone}
assert none.steps == by_name[REUSE].steps == by_name[QUANTIZED].steps
assert by_name[CONTINUOUS].steps < none.steps or lengths == sorted(lengths)
assert by_name[CONTINUOUS].computed_tokens == none.computed_tokens
assert by_name[REUSE].computed_tokens == none.computed_tokens - 11 * 64  # computed once
assert by_name[QUANTIZED].num_bytes < none.num_bytes / 2
assert by_name[SPECULATIVE].computed_tokens > none.computed_tokens
assert by_name[SPECULATIVE].steps < none.steps

# %% key="09-effects"
show(plots.strategy_effects([none, *alone]))

# %% key="09-alone-reveal"
reveal("09.steps", min(alone, key=lambda run: run.steps).name)

# %% key="09-more-reveal"
reveal("09.more", max(alone, key=lambda run: run.computed_tokens).name)

# %% key="09-because-alone"
because(
    "09.saves",
    "Why does reuse leave the number of steps as it is, and quantization the number of tokens?",
    explain=(
        "Each works at another place of the road. Continuous batching lets the **queue** into "
        "places that are free. Reuse shortens the **prompts** in a step, not the number of steps. "
        "Quantization changes the **bytes** of each pass and nothing that is counted in tokens. "
        "Drafts put more tokens into a **pass**, so fewer are needed, and some are for nothing."
    ),
)

# %% [markdown] key="09-times-prose" lang="en"
# Counts are what each strategy does; time is what this machine makes of them. Which of the four
# saves time here, and which does not? The clock varies; read only large differences.

# %% key="09-times"
for run in (none, *alone):
    print(run.times)

# %% [markdown] key="09-times-small" lang="en"
# What the small model cannot show: on a GPU a pass waits for bytes, so that fewer bytes and fewer
# passes are time. On a processor arithmetic counts as much: checking 5 tokens takes longer than
# one, 8-bit products pay only with instructions made for them, and keys and values in 8 bits are
# unpacked before each use.

# %% [markdown] key="09-together-prose" lang="en"
# ## Experiment 3: all together
#
# Continuous batching and speculative decoding both save steps. The share of steps that each alone
# leaves is printed first.

# %% key="09-shares"
left = {run.name: run.steps / none.steps for run in alone}
product = left[CONTINUOUS] * left[SPECULATIVE]
for name in (CONTINUOUS, SPECULATIVE):
    print(f"{name:21}leaves {left[name]:4.0%} of the steps")
print(f"the product of the two is {product:.0%}")

# %% key="09-predict-together"
question = "With all four on: what share of the steps is left, against the product?"
shares = ["less than the product", "the product, within 2 points", "more than the product"]
predict("09.together", question, choices=shares, default=shares[1])

# %% key="09-together"
together = serve_with(STRATEGIES, prompts, params, "all four")
for run in (none, together):
    print(run)
found = together.steps / none.steps
print(f"{found:.0%} of the steps are left; the product was {product:.0%}")
assert together.steps < min(run.steps for run in alone)
assert together.num_bytes < min(run.num_bytes for run in alone)

# %% key="09-together-reveal"
reveal("09.together", shares[(found > product - 0.02) + (found > product + 0.02)])

# %% key="09-together-flow"
show(plots.serving_flow(together.trace, title="All four: who waits, what runs, what comes out?"))

# %% key="09-because-together"
because(
    "09.together",
    "Why need the shares not multiply?",
    explain=(
        "They meet in the same steps. Drafts end requests sooner, which leaves a static batch "
        "emptier and a continuous one full; a step with many requests has less room for drafts; "
        "and at the end of the run, when nobody waits any more, continuous batching has nothing "
        "left to fill. A gain holds for the bottleneck that was there when it was measured."
    ),
)

# %% [markdown] key="09-together-change" lang="en"
# **Change it.** Leave two out: `serve_with((CONTINUOUS, SPECULATIVE), prompts, params, "two")`.
# Which of the four panels of the figure would move, and which would not?

# %% [markdown] key="09-drafts-prose" lang="en"
# ## Experiment 4: how many drafts?
#
# Let $\alpha$ be the chance that a draft is right. A draft counts only if all before it were right,
# so $\gamma$ drafts bring
#
# $$1 + \alpha + \alpha^2 + \dots + \alpha^\gamma = \frac{1 - \alpha^{\gamma + 1}}{1 - \alpha}$$
#
# tokens a step (Leviathan et al. 2023).

# %% key="09-predict-drafts"
question = "8 drafts in place of 2: how many times as many tokens a step?"
predict("09.drafts", question, low=1, high=4, unit="times")

# %% key="09-drafts"
target, draft = load("lab-target", "float32"), load("lab-draft", "float32")
some, answers = prompts[:4], strategies.greedy_lengths([32] * 4)
measured, alphas = {}, {}
for count in (1, 2, 4, 8):
    llm = LLM(target, draft=draft, num_draft_tokens=count, num_blocks=64)
    llm.generate(some, answers)
    metrics = llm.metrics
    measured[count] = metrics.mean_accepted_length
    alphas[count] = metrics.acceptance_probability
    print(f"{count} drafts: {metrics.steps:>3} steps, {measured[count]:.2f} tokens each, ", end="")
    print(f"{metrics.acceptance_rate:4.0%} of the drafts right")

# %% key="09-drafts-figure"
alpha = alphas[8]
print(f"of the drafts that were judged, {alpha:.0%} were right")
show(plots.draft_gain(measured, alpha))

# %% key="09-drafts-reveal"
reveal("09.drafts", measured[8] / measured[2])
assert measured[2] < measured[8] < expected_tokens(1.0, 8)

# %% key="09-because-drafts"
because(
    "09.alpha",
    "The share of right drafts falls with their number. Is the draft model getting worse?",
    explain=(
        "No. All drafts after the first wrong one are lost, right or not, so that the later ones "
        "are hardly ever used. However many there are, a step brings at most 1 / (1 - alpha) "
        "tokens. Real text is not equally hard everywhere, so measured points lie beside the "
        "curve of one alpha."
    ),
)

# %% [markdown] key="09-batch-prose" lang="en"
# Now with more requests at once. The drafts stay as good; what changes is what a pass costs.

# %% key="09-batch"
for batch in (1, 12):
    told = []
    for name, chosen in (("none", None), ("lab-draft", draft), ("lookup", PromptLookup())):
        llm = LLM(target, draft=chosen, max_num_seqs=batch, num_blocks=16 * batch)
        llm.generate(prompts[:batch], strategies.greedy_lengths([4] * batch))  # warms up
        llm.reset_metrics()
        llm.generate(prompts[:batch], strategies.greedy_lengths([20] * batch))
        told.append(f"{name} {llm.metrics.generation_tokens_per_second:4.0f}")
    print(f"batch {batch:>2}, tokens/s:", ", ".join(told))

# %% [markdown] key="09-belief-prose" lang="en"
# ## Two misconceptions, refuted by running them

# %% key="09-belief-all"
belief = misconception("09.all-faster")
belief

# %% key="09-refute-all"
belief.refute()

# %% key="09-belief-drafts"
belief = misconception("09.drafts-change-output")
belief

# %% key="09-refute-drafts"
belief.refute()

# %% [markdown] key="09-worse-prose" lang="en"
# ## What they made worse
#
# Each strategy has a price, and every one can be counted on the runs above.

# %% key="09-worse-drafts"
run = by_name[SPECULATIVE]
wasted = run.proposed_tokens - run.accepted_tokens
print(f"speculative: {wasted} of {run.proposed_tokens} drafts were computed for nothing")
more = run.computed_tokens - none.computed_tokens
print(f"             {more} more tokens through the model for the same {run.output_tokens}")
assert run.texts == none.texts and more > 0

# %% key="09-worse-int8"
pairs = list(zip(none.texts, by_name[QUANTIZED].texts, strict=True))
changed = sum(a != b for a, b in pairs)
print(f"quantization: {changed} of {len(pairs)} greedy answers are other ones")
print("tokens until they part:", [strategies.same_tokens(a, b) for a, b in pairs])
assert by_name[CONTINUOUS].texts == by_name[REUSE].texts == none.texts


# %% key="09-worse-continuous"
def prompts_beside(run):
    """Prompt tokens in the steps in which a request had its answer to write, over all requests."""
    total = 0
    for step in run.trace:
        read = sum(item.num_prompt_tokens for item in step.scheduled)
        total += read * sum(item.num_prompt_tokens == 0 for item in step.scheduled)
    return total


for run in (none, by_name[CONTINUOUS], by_name[REUSE], together):
    print(f"{run.name:21}{prompts_beside(run):5} times a prompt token was read beside an answer")
assert prompts_beside(none) == 0 < prompts_beside(by_name[CONTINUOUS])

# %% [markdown] key="09-worse-so" lang="en"
# Continuous batching lets a newcomer's prompt into a step in which others write: their next token
# comes later. Reuse softens that, since less of a prompt is left to read. And reuse keeps blocks
# for a prefix that may never come again.

# %% [markdown] key="09-whatif-prose" lang="en"
# ## What if it were an 8B model on a GPU?
#
# Calculated from data sheets, as a bound: the target checks $\gamma + 1$ tokens for each request in
# a pass, after $\gamma$ passes of a 1B draft. The tokens of a step follow from the formula that you
# just held against a measurement.

# %% key="09-whatif"
eight = ModelSize.llama3_8b()
one = ModelSize("Llama-3.2-1B", 1_235_814_400, 2048, KVShape(16, 8, 64))


def pass_seconds(size, batch, tokens, context=512, gpu="A100"):
    """One pass over `tokens` tokens of each request."""
    rows, kv = batch * tokens, batch * context
    load = StepLoad(rows, batch, rows, kv, tokens * kv, 0, batch)
    return Deployment(size, GPUS[gpu]).seconds(load)


# %% key="09-whatif-speedup"
def speedup(alpha, count, batch):
    """Times as fast as one token a step."""
    checked = pass_seconds(eight, batch, count + 1)
    drafted = count * pass_seconds(one, batch, 1)
    gained = expected_tokens(alpha, count) * pass_seconds(eight, batch, 1)
    return gained / (checked + drafted)


for batch in (1, 64, 256):
    print(f"batch {batch:>3}: {speedup(0.8, 4, batch):.2f} times as fast (calculated)")
assert speedup(0.8, 4, 1) > max(1, speedup(0.8, 4, 256))

# %% key="09-whatif-figure"
batches, counts = [2**i for i in range(9)], [2, 4, 8]
show(plots.draft_speedup(speedup, batches, counts, [0.4, 0.6, 0.7, 0.8, 0.9]))

# %% [markdown] key="09-whatif-change" lang="en"
# Move the slider: a better draft lifts the left end most. At the right end the GPU is busy
# computing, and rejected drafts take the place of real tokens.
#
# **Change it.** Put `gpu="H200"` or `context=4096` into `pass_seconds`. Both move the crossings
# to larger batches, and at 70% one of them moves two out of the picture: which, and why? (What does
# a pass wait for there?)

# %% key="09-quiz"
quiz("09.bottleneck")

# %% key="09-footer" tags=["hide"]
footer("09_optimisation_strategies")
