# %% key="01-header" tags=["hide"]
from llmserve_lab.course import header

header("01_problem_setting")

# %% [markdown] key="01-problem" lang="en"
# ## The problem
#
# A model that answers well is not yet a service. Three measures decide whether it can be one:
#
# - **Latency**: how fast *one request* is done, in seconds.
# - **Throughput**: how many requests are done *per second*.
# - **Memory**: what the GPU must *hold* to do it, in bytes.
#
# You cannot have the best of all three. This chapter measures why.

# %% key="01-imports"
from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import because, footer, guess_for, misconception, predict, quiz, reveal
from llmserve_lab.course.experiments import MIB, held_out_prompts, serve_in_batches
from llmserve_lab.plots import kv_block_map, show, step_times, tradeoff_panels, whatif_triangle
from llmserve_lab.simulate import GPUS, ModelSize, decode_estimate

# %% key="01-model"
model = load("lab-target")
prompts = held_out_prompts(model.tokenizer, count=32, num_tokens=48)
params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
print(len(prompts), "prompts of", len(prompts[0]["prompt_token_ids"]), "tokens")

# %% [markdown] key="01-one-prose" lang="en"
# ## All three on one request
#
# One request is enough to see what each measure is. The engine records its own steps; the numbers
# below come from that record.

# %% key="01-one"
llm = LLM(model, trace=True)
llm.generate(prompts[0], params)  # the first run also warms up
llm = LLM(model, trace=True)
output = llm.generate(prompts[0], params)[0]
show(step_times(llm.trace, title="Where does one request's time go?"))

# %% key="01-one-numbers"
held = llm.trace[-1].finished[0]
kv_bytes = len(held.block_table) * llm.capacity.block_bytes
print(f"latency     {output.metrics.e2e * 1000:.0f} ms, from arrival to the last token")
print(f"throughput  {1 / output.metrics.e2e:.1f} requests/s, one after another")
print(f"memory      {kv_bytes / MIB:.2f} MiB of KV cache in {len(held.block_table)} blocks")

# %% [markdown] key="01-sweep-prose" lang="en"
# ## Experiment 1: the same 32 requests, more at a time
#
# Now 32 requests: one by one, then 4, 16 and 32 together. *Batch size* is how many share each step
# of the engine. Each batch starts when the one before is done, so nobody waits in a queue.

# %% key="01-predict-throughput"
question = "How many times more requests per second does 32 at a time give, on this machine?"
predict("01.throughput", question, low=0.5, high=40, unit="times", log=True)

# %% key="01-predict-latency"
question = "And one request's own latency, at 32 at a time against one by one?"
outcomes = ["shorter", "about the same (within 10%)", "longer"]
predict("01.latency", question, choices=outcomes, default=outcomes[1])

# %% key="01-sweep"
runs = [serve_in_batches(model, prompts, params, batch_size=b) for b in (1, 4, 16, 32)]
for run in runs:
    print(run)

# %% key="01-panels"
alone, full = runs[0], runs[-1]
guess = guess_for("01.throughput")  # None where nobody guessed
mark = {"throughput": (32, guess * alone.throughput)} if guess else None
show(tradeoff_panels(runs, guess=mark))

# %% key="01-reveal-throughput"
gain = full.throughput / alone.throughput
reveal("01.throughput", gain)

# %% key="01-reveal-latency"
wait = full.latency / alone.latency
reveal("01.latency", outcomes[(wait > 1 / 1.1) + (wait > 1.1)])

# %% key="01-reading"
print(f"32 at a time: {gain:.1f} times the throughput, {wait:.1f} times the latency,")
print(f"{full.kv_mib / alone.kv_mib:.0f} times the KV cache.")
print(f"A step with 32 tokens took {full.step_ms / alone.step_ms:.1f} times one with 1.")
assert full.steps < alone.steps
assert full.kv_mib == 32 * alone.kv_mib

# %% key="01-because"
because(
    "01.batch",
    "Why is a step for 32 requests not 32 times as long as a step for one?",
    explain=(
        "A step reads every weight of the model once, and works through the same chain of layers, "
        "for one token or for 32. Only the arithmetic and the KV cache grow with the batch. So the "
        "step gets longer, but by less than the batch grew: that difference is the throughput."
    ),
)

# %% [markdown] key="01-change-prose" lang="en"
# **Change it.** Make the prompts four times as long (`num_tokens=192`) and run from there again.
# Which of the three panels moves most?

# %% [markdown] key="01-memory-prose" lang="en"
# ## Experiment 2: what memory has to do with it
#
# The engine may run all 32 requests together. But the KV cache now has only 40 blocks of 16 tokens.
# A prompt of 48 tokens fills 3 blocks, and at its end a request holds 5.

# %% key="01-predict-memory"
question = "How many of the 32 requests will ever run in the same step?"
predict("01.memory", question, low=1, high=32, step=1, unit="requests")

# %% key="01-memory"
tight = LLM(model, max_num_seqs=32, num_blocks=40, trace=True)
outputs = tight.generate(prompts, params)
together = max(len(step.scheduled) for step in tight.trace)
sent_back = sum(len(step.preempted) for step in tight.trace)
print(len(outputs), "requests done,", len(tight.trace), "steps; at most", together, "together")
print(sent_back, "times a request gave up its blocks and was computed again later")
assert tight.pool.blocks_for(48) == 3 and len(held.block_table) == 5
assert together == 40 // 3

# %% key="01-memory-map"
show(kv_block_map(tight.trace))

# %% key="01-memory-reveal"
reveal("01.memory", together)

# %% key="01-memory-because"
because(
    "01.memory-limit",
    "The scheduler would have allowed 32. What stopped it?",
    explain=(
        "Every running request keeps the keys and values of **all** its tokens: 40 blocks hold 13 "
        "prompts of 3. Then they grow, no block is free, and some must give theirs back. Memory "
        "sets the batch size, and the batch size sets both other measures."
    ),
)

# %% [markdown] key="01-belief-prose" lang="en"
# ## A misconception, refuted by running it

# %% key="01-belief"
belief = misconception("01.throughput-is-latency")
belief

# %% key="01-refute"
belief.refute()

# %% [markdown] key="01-worse-prose" lang="en"
# ## What batching made worse
#
# A larger batch is not free. From the same runs: what one user pays for the machine's gain, and
# what a batch of 32 gives to someone who comes alone.

# %% key="01-worse"
for run in runs:
    each, machine = 1000 / run.step_ms, run.tokens_per_second
    print(f"batch {run.batch_size:>2}: {each:4.0f} tokens/s a user, {machine:5.0f} in all")
lone = serve_in_batches(model, prompts[:1], params, batch_size=32)
print(f"one request alone on an engine for 32 takes {lone.steps} steps; 32 take {full.steps}")
assert lone.steps == full.steps

# %% [markdown] key="01-whatif-prose" lang="en"
# ## What if it were a 7B model on a real GPU?
#
# The same triangle by formula. One decode step reads all weights and all KV once, so it takes at
# least
#
# $$t = \max\left(\frac{\text{weights} + \text{KV}}{\text{bandwidth}},
# \frac{\text{operations}}{\text{FLOP/s}}\right)$$
#
# It is a *floor*: no server is faster. Memory is exact; test it first on the model that you have
# just measured.

# %% key="01-validate"
small = ModelSize.of("lab-target", model.model)
tokens_held = len(held.block_table) * llm.trace[-1].block_size
print(f"calculated {small.kv_bytes(tokens_held) / MIB:.3f} MiB, measured {kv_bytes / MIB:.3f} MiB")
assert small.kv_bytes(tokens_held) == kv_bytes

# %% key="01-whatif"
seven = ModelSize.llama2_7b()


def calculate(gpu, batch_size):
    step = decode_estimate(seven, GPUS[gpu], batch_size, context=1024)
    return {
        "latency_ms": 1000 * step.seconds,
        "throughput": step.tokens_per_second,
        "memory_gib": step.memory_bytes / 2**30,
        "capacity_gib": GPUS[gpu].memory_gib,
    }


# %% key="01-whatif-figure"
show(whatif_triangle(calculate, list(GPUS)))

# %% key="01-whatif-reading"
one, many = (calculate("A100", b) for b in (1, 32))
print(f"A100, calculated: batch 32 gives {many['throughput'] / one['throughput']:.0f} times the")
print(f"throughput for {many['latency_ms'] / one['latency_ms']:.1f} times the time per token,")
print(f"and {many['memory_gib']:.0f} instead of {one['memory_gib']:.0f} GiB.")
assert many["throughput"] > 5 * one["throughput"] and many["memory_gib"] > one["memory_gib"]

# %% [markdown] key="01-whatif-change" lang="en"
# **Change it.** Choose a T4: which batch sizes are crossed out? Then set `context=4096` in
# `calculate`. Which of the three measures did the context touch, and why not the weights?

# %% key="01-quiz"
quiz("01.tradeoff")

# %% key="01-footer" tags=["hide"]
footer("01_problem_setting")
