# %% key="12-header" tags=["hide"]
from llmserve_lab.course import header

header("12_checklist")

# %% [markdown] key="12-problem" lang="en"
# ## Five questions
#
# You know something when you can say it without looking, and prove it. Part 1 ends with five
# questions. For each:
#
# 1. Write an answer, as you would tell a colleague.
# 2. Compare it with one way to say it, and tick what yours says too.
# 3. Run the cells below it: they prove the answer on the engine.
#
# Your answers stay in your progress file.

# %% key="12-imports"
from statistics import median

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import because, explain, misconception, predict, quiz, reveal, revisit
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.summary_sheet import summary_sheet
from llmserve_lab.plots import batch_composition, kv_block_map, show, step_times, user_waits
from llmserve_lab.simulate import GPUS, ModelSize, decode_estimate

# %% key="12-model"
model = load("lab-target")
prompts = held_out_prompts(model.tokenizer, count=8, num_tokens=64)


def answer(num_tokens):
    return SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)


def cut(num_tokens):
    return {"prompt_token_ids": prompts[0]["prompt_token_ids"][:num_tokens]}


LLM(model).generate(prompts, answer(8))  # warm up
print(len(prompts), "prompts of", len(prompts[0]["prompt_token_ids"]), "tokens")

# %% [markdown] key="12-stages-prose" lang="en"
# ## 1. The stages of latency

# %% key="12-stages-explain"
explain("doc1.stages")

# %% [markdown] key="12-stages-run-prose" lang="en"
# **The proof.** Two requests of 72 tokens each: a prompt of 64 and an answer of 8, or a prompt of 8
# and an answer of 64. A third has the longer one of both.

# %% key="12-predict-stages"
question = "How many times as many steps does the second take as the first?"
predict("12.same-total", question, low=1, high=64, unit="times", log=True, default=2)

# %% key="12-stages"
steps = {}
for n, m in ((64, 8), (8, 64), (64, 64)):
    llm = LLM(model, trace=True)
    times = llm.generate(cut(n), answer(m))[0].metrics
    prefill = [step for step in llm.trace if step.scheduled[0].num_prompt_tokens]
    steps[n, m] = len(llm.trace)
    print(f"{n:>2} in, {m:>2} out: {len(prefill)} prefill step and ", end="")
    print(f"{steps[n, m] - len(prefill):>2} decode steps; ", end="")
    print(f"{1000 * times.ttft:.1f} + {1000 * (times.e2e - times.ttft):.1f} ms")
    assert [step.num_tokens for step in llm.trace] == [n] + [1] * (m - 1)

# %% key="12-stages-figure"
show(step_times(llm.trace, title="Which of the 64 steps is the prefill?"))

# %% key="12-reveal-stages"
reveal("12.same-total", steps[8, 64] / steps[64, 8])
assert steps[8, 64] == 8 * steps[64, 8]

# %% [markdown] key="12-difference-prose" lang="en"
# ## 2. Prefill against decode

# %% key="12-difference-explain"
explain("doc1.prefill-decode")

# %% [markdown] key="12-difference-run-prose" lang="en"
# **The proof.** The engine counts, for each step, the bytes that it must move and the operations
# that it must do, at least. We read the counters around a prefill and around a decode step.

# %% key="12-predict-difference"
question = "Operations per byte: a prefill of 64 tokens has how many times those of a decode step?"
predict("12.per-byte", question, low=1, high=1000, unit="times", log=True, default=4)

# %% key="12-difference"
llm = LLM(model, trace=True)
llm.add_request(prompts[0], answer(16))
seen, per_byte = [llm.metrics], []
for name in ("prefill", "decode"):
    llm.step()
    seen.append(llm.metrics)
    moved = seen[-1].num_bytes - seen[-2].num_bytes
    per_byte.append((seen[-1].flops - seen[-2].flops) / moved)
    print(f"{name}: {llm.trace[-1].num_tokens:>2} tokens, {moved / 1e6:.1f} MB moved, ", end="")
    print(f"{per_byte[-1]:.2f} operations for each byte")

# %% key="12-reveal-difference"
reveal("12.per-byte", per_byte[0] / per_byte[1])
assert per_byte[0] > 10 * per_byte[1]

# %% [markdown] key="12-mixed-prose" lang="en"
# They are two ways to use the same pass. While this request decodes, a second one comes: the next
# step holds both.

# %% key="12-mixed"
llm.add_request(prompts[1], answer(12))
llm.step()
for item in llm.trace[-1].scheduled:
    print(f"request {item.request_id}: {item.num_tokens:>2} tokens in, 1 out")
assert [item.num_tokens for item in llm.trace[-1].scheduled] == [1, 64]
assert len(llm.trace[-1].sampled) == 2
while llm.has_work:
    llm.step()

# %% key="12-mixed-figure"
show(batch_composition(llm.trace))

# %% [markdown] key="12-parallel-prose" lang="en"
# ## 3. Why decode is a chain

# %% key="12-parallel-explain"
explain("doc1.decode-parallel")

# %% [markdown] key="12-parallel-run-prose" lang="en"
# **The proof.** 64 tokens, made in three ways: one request on an engine for one; one request on an
# engine for 64; and eight requests of 8 tokens on that same engine.

# %% key="12-predict-parallel"
question = "One request of 64 tokens, on the engine with room for 64: how many steps?"
outcomes = ["1", "8", "64"]
predict("12.room", question, choices=outcomes, default=outcomes[1])

# %% key="12-parallel"
taken = []
for room, count, each in ((1, 1, 64), (64, 1, 64), (64, 8, 8)):
    llm = LLM(model, max_num_seqs=room)
    llm.generate(prompts[:count], answer(each))
    done = llm.metrics
    taken.append(done.steps)
    print(f"room for {room:>2}: {count} x {each:>2} tokens in {done.steps:>2} steps")
    assert done.generation_tokens == 64
assert taken == [64, 64, 8]

# %% key="12-reveal-parallel"
reveal("12.room", str(taken[1]))

# %% key="12-because-parallel"
because(
    "12.parallel",
    "The third row has all its 64 tokens after 8 steps. Why can the second not do that?",
    explain=(
        "Eight requests are eight chains: their first tokens do not need each other. In one "
        "request token 9 needs token 8 as its input, and there is none before the eighth step "
        "has ended. Room does not help: the step cannot be filled with tokens that nobody has "
        "drawn yet. A **draft** that guesses them would fill it."
    ),
)

# %% [markdown] key="12-cache-prose" lang="en"
# ## 4. The KV cache

# %% key="12-cache-explain"
explain("doc1.kv-cache")

# %% [markdown] key="12-cache-run-prose" lang="en"
# **The proof.** Copy the whole cache before a decode step, and compare it with the cache after it.
# There are 40 blocks of 16 slots, and a slot holds one token.

# %% key="12-predict-cache"
question = "The prompt of 64 tokens is in. One decode step: how many of the 640 slots change?"
slots = ["1", "16", "65"]
predict("12.slots", question, choices=slots, default=slots[2])

# %% key="12-cache"
llm = LLM(model, num_blocks=40, trace=True)
llm.add_request(prompts[0], answer(24))
llm.step()  # prefill
cache = [*llm.kv_cache.keys, *llm.kv_cache.values]  # each (slots, KV heads, head dimension)
before = [part.clone() for part in cache]
llm.step()  # one decode step
changed = [(old != new).flatten(1).any(1) for old, new in zip(before, cache, strict=True)]
print("changed slots by layer, keys and values:", *(int(part.sum()) for part in changed))
written = sum(part[0].nbytes for part in cache)
print(written, "bytes, with", llm.capacity.bytes_per_token, "per token by the engine's own plan")
assert all(int(part.sum()) == 1 for part in changed)
assert written == llm.capacity.bytes_per_token

# %% key="12-reveal-cache"
reveal("12.slots", str(int(changed[0].sum())))

# %% key="12-growth"
while llm.has_work:
    llm.step()
sizes = [view.num_computed_tokens for step in llm.trace for view in (*step.running, *step.finished)]
kv_bytes = [size * llm.capacity.bytes_per_token for size in sizes]
print(f"{len(sizes)} steps: {kv_bytes[0]:,} bytes after the prefill, {kv_bytes[-1]:,} at the end")
assert sizes == list(range(64, 64 + 24))

# %% key="12-growth-figure"
show(kv_block_map(llm.trace))

# %% [markdown] key="12-tradeoff-prose" lang="en"
# ## 5. Latency against throughput

# %% key="12-tradeoff-explain"
explain("doc1.tradeoff")

# %% [markdown] key="12-tradeoff-run-prose" lang="en"
# **The proof.** Eight users come at the same moment, and each wants 24 tokens. The engine's batch
# is limited to 1, 2, 4 or 8.

# %% key="12-predict-tradeoff"
question = "From limit 4 to limit 8: for how many of the 8 users does the first token come earlier?"
users = ["none", "4", "8"]
predict("12.who-gains", question, choices=users, default=users[2])

# %% key="12-tradeoff"
runs, first = {}, {}
for limit in (1, 2, 4, 8):
    llm = LLM(model, max_num_seqs=limit, trace=True)
    llm.generate(prompts, answer(24))
    runs[limit], first[limit] = llm, {}
    for step in llm.trace:
        for token in step.sampled:
            first[limit].setdefault(int(token.request_id), step.step + 1)
    rate = llm.metrics.generation_tokens / llm.metrics.steps
    print(f"limit {limit}: {len(llm.trace):>3} steps, {rate:g} tokens a step; first token in step")
    print("   ", *first[limit].values())
    assert len(llm.trace) == 24 * 8 // limit and rate == limit

# %% key="12-tradeoff-figure"
show(user_waits({limit: llm.trace for limit, llm in runs.items()}))

# %% key="12-reveal-tradeoff"
earlier = sum(first[8][user] < first[4][user] for user in range(8))
reveal("12.who-gains", str(earlier))
assert earlier == 4

# %% [markdown] key="12-tradeoff-change" lang="en"
# **Change it.** Move the slider from 1 to 8: the dotted part goes, and the blue part never gets
# shorter. Then set `answer(48)` in the cell above the figure, and `48` in its assertion. What
# happens to the last user's wait for the first token, at each limit?

# %% [markdown] key="12-belief-prose" lang="en"
# ## A misconception, refuted by running it

# %% key="12-belief"
belief = misconception("12.doubling-halves")
belief

# %% key="12-refute"
belief.refute()

# %% [markdown] key="12-worse-prose" lang="en"
# ## What the larger batch made worse
#
# From the same runs. Steps hide one thing: on most machines they get longer with the batch, for
# everyone in it. And memory grows with each request, on every machine.

# %% key="12-worse"
for limit, llm in runs.items():
    decode = [step for step in llm.trace if step.num_tokens == limit]
    ms = 1000 * median(step.seconds for step in decode)
    blocks = llm.metrics.peak_kv_blocks_used
    kib = blocks * llm.capacity.block_bytes / 1024
    print(f"limit {limit}: {ms:5.2f} ms for each token of each user, {kib:6.0f} KiB of KV cache")
assert runs[8].metrics.peak_kv_blocks_used == 8 * runs[1].metrics.peak_kv_blocks_used

# %% [markdown] key="12-whatif-prose" lang="en"
# ## What if it were a 7B model?
#
# Part 1 in one formula: bytes per token decide how many users fit, bytes per step decide how long a
# step takes. First the formula against the engine, then the numbers that this machine cannot
# measure.

# %% key="12-whatif"
small, seven = ModelSize.of("lab-target", model.model), ModelSize.llama2_7b()
per_token = runs[8].capacity.bytes_per_token
assert small.kv_bytes(1) == per_token
print(f"calculated = measured: {per_token:,} bytes per token; 7B: {seven.kv_bytes(1):,.0f}")
print("7B on an A100, calculated:")
for batch in (1, 8, 32):
    step = decode_estimate(seven, GPUS["A100"], batch, context=1024)
    print(f"batch {batch:>2}: {step.memory_bytes / 2**30:.0f} GiB, at least ", end="")
    print(f"{1000 * step.seconds:4.1f} ms a step, at most {step.tokens_per_second:5.0f} tokens/s")

# %% [markdown] key="12-sheet-prose" lang="en"
# ## Your summary, on one page
#
# Formulas, units, and the numbers of your run. *Print* gives one A4 page. `save` writes it as an
# HTML file that needs no network: `sheet.save("my/folder")`.

# %% key="12-sheet"
alone = LLM(model).generate(prompts[0], answer(24))[0].metrics
rate = {limit: llm.metrics.generation_tokens_per_second for limit, llm in runs.items()}
measured = {
    "TTFT, alone, 64 prompt tokens": (1000 * alone.ttft, "ms"),
    "TPOT, alone": (1000 * alone.tpot, "ms per token"),
    "Latency, alone, 24 output tokens": (1000 * alone.e2e, "ms"),
    "Throughput, batch limit 1": (rate[1], "tokens/s"),
    "Throughput, batch limit 8": (rate[8], "tokens/s"),
    "Gain of batch limit 8": (rate[8] / rate[1], "times"),
    "KV cache": (per_token, "bytes per token"),
    "KV cache of 8 requests": (runs[8].metrics.peak_kv_blocks_used, "blocks of 16"),
}
sheet = summary_sheet(measured, on=f"lab-target, {model.model.dtype}, {model.model.device.type}")
sheet

# %% key="12-save"
path = sheet.save()  # or sheet.save("a folder of yours")
print("written:", path.name, f"({path.stat().st_size / 1024:.0f} KiB)")

# %% [markdown] key="12-revisit-prose" lang="en"
# ## What to look at again
#
# From your own record: questions and points not ticked, guesses off by more than a factor of two,
# quiz questions that took a second try, misconceptions not yet refuted.

# %% key="12-revisit"
revisit()

# %% key="12-quiz"
quiz("12.lengths")

# %% key="12-footer" tags=["hide"]
from llmserve_lab.course import footer

footer("12_checklist")
