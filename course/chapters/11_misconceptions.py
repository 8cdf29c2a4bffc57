# %% key="11-header" tags=["hide"]
from llmserve_lab.course import header

header("11_misconceptions")

# %% [markdown] key="11-problem" lang="en"
# ## The problem
#
# Five sentences about serving that many believe. Each has a grain of truth, and that is what makes
# it hard to let go. You have measured things that speak against all five.
#
# Before anything runs, say where you stand, and how surely. *agree*: it holds as it is written.
# *partly*: as a rule, with exceptions. *disagree*: it fails in ordinary serving.

# %% key="11-imports"
from llmserve_lab import LLM, SamplingParams, Scheduler, load, plots
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal
from llmserve_lab.course.belief_change import DISAGREE, STANCES, belief_changes
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.forgetful import ForgetfulScheduler
from llmserve_lab.course.gpu_service import serve_on_gpu
from llmserve_lab.course.jacobi import jacobi_passes, refine, right_so_far
from llmserve_lab.course.serving_order import serve_at_once
from llmserve_lab.plots import show
from llmserve_lab.simulate import GPUS, SLO, Deployment, ModelSize

# %% key="11-before-latency"
belief = "When throughput is high, latency is always low."
predict("11.latency", belief, choices=STANCES, default="partly")

# %% key="11-before-parallel"
belief = "The decode stage can be made fully parallel."
predict("11.parallel", belief, choices=STANCES, default="partly")

# %% key="11-before-context"
belief = "The context's length has no effect on memory."
predict("11.context", belief, choices=STANCES, default="partly")

# %% key="11-before-optional"
belief = "The KV cache is optional: a server may do without it."
predict("11.optional", belief, choices=STANCES, default="partly")

# %% key="11-before-batch"
belief = "A larger batch is always better."
predict("11.batch", belief, choices=STANCES, default="partly")

# %% key="11-model"
model = load("lab-target", dtype="float32")


def greedy(tokens):
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)


prompts = held_out_prompts(model.tokenizer, count=8, num_tokens=48)
print(len(prompts), "prompts of", len(prompts[0]["prompt_token_ids"]), "tokens")

# %% [markdown] key="11-latency-prose" lang="en"
# ## 1. "When throughput is high, latency is always low"
#
# Eight requests are there at once: two ask for 64 tokens, six for 8. They are served two at a time
# in order of arrival, or one at a time with the shortest first. Time is counted in steps, so it is
# the same on every machine.

# %% key="11-latency-run"
lengths = [64, 64, 8, 8, 8, 8, 8, 8]
wide = serve_at_once(model, prompts, lengths, slots=2)
short = serve_at_once(model, prompts, lengths, slots=1, shortest_first=True)
print("2 at a time, as they came:  ", wide)
print("1 at a time, shortest first:", short)
assert wide.tokens == short.tokens
if max(lengths) >= 8 * min(lengths):  # two long answers, six short ones
    assert short.steps == 2 * wide.steps and wide.median_wait > 2 * short.median_wait

# %% key="11-latency-figure"
title = "Two at a time in order of arrival: who waits for whom?"
show(plots.request_timeline(wide.trace, title=title))

# %% key="11-latency-figure-short"
title = "One at a time, shortest first: who waits for whom?"
show(plots.request_timeline(short.trace, title=title))

# %% key="11-latency-reveal"
reveal("11.latency", DISAGREE)

# %% key="11-latency-because"
because(
    "11.latency",
    "Half the throughput, and most requests were done much sooner. How is that possible?",
    explain=(
        "Throughput is a sum over all requests; it does not say when each is done. As they came, "
        "two long answers took both places and six short ones waited behind them. Shortest first, "
        "only the two long ones wait. (The slots' number and the order are two separate knobs: "
        "with both, two places and the shortest first, these requests would do better still.)"
    ),
)

# %% key="11-latency-belief"
belief = misconception("11.latency")
belief

# %% key="11-latency-refute"
belief.refute()

# %% [markdown] key="11-latency-grain-prose" lang="en"
# **The grain of truth**: where requests queue, throughput shortens the queue. In the *same* order,
# two places against one:

# %% key="11-latency-grain"
narrow = serve_at_once(model, prompts, lengths, slots=1)
print("1 at a time, as they came:", narrow)
print("2 at a time, as they came:", wide)
assert narrow.median_wait > wide.median_wait and narrow.tokens_per_step < wide.tokens_per_step

# %% [markdown] key="11-latency-change" lang="en"
# **Change it.** Set `lengths = [64, 64, 2, 2, 2, 2, 2, 2]` and run from there. Which of the two
# medians moves most? For which lengths would the order not matter at all?

# %% key="11-latency-retest"
quiz("11.retest.latency")

# %% [markdown] key="11-parallel-prose" lang="en"
# ## 2. "The decode stage can be made fully parallel"
#
# Take it at its word. Guess all 24 tokens of an answer, and let one pass compute what belongs at
# *every* place, side by side. Put that in as the next guess, and go on until nothing changes
# (*Jacobi decoding*, Santilli et al. 2023). Each pass is fully parallel.

# %% key="11-parallel-predict"
question = "24 places, all computed in each pass: after how many passes does the text stand?"
predict("11.passes", question, low=1, high=25, step=1, unit="passes")

# %% key="11-parallel-one"
prompt = held_out_prompts(model.tokenizer, count=1, num_tokens=48, seed=2)[0]["prompt_token_ids"]
guess = [prompt[-1]] * 24  # any tokens will do
first = refine(model, prompt, guess)
print("one pass over", len(first), "places:")
print(repr(model.tokenizer.decode(first)))
(output,) = LLM(model).generate({"prompt_token_ids": prompt}, greedy(24))
print("24 decode steps:")
print(repr(output.outputs[0].text))

# %% key="11-parallel-run"
passes = jacobi_passes(model, prompt, guess)
secured = right_so_far(passes)
print(len(passes), "passes over", len(guess), "places =", len(passes) * len(guess), "computed")
print("right from the start on, after each pass:")
print(*secured)
assert passes[-1] == list(output.outputs[0].token_ids)  # the same text, by another way
assert all(right > done for done, right in enumerate(secured[: len(guess)]))  # one more a pass

# %% key="11-parallel-figure"
show(plots.parallel_guesses(passes, [model.tokenizer.decode(row) for row in passes]))

# %% key="11-parallel-reveal"
standing = 1 + secured.index(len(guess))
reveal("11.passes", standing)
reveal("11.parallel", DISAGREE)

# %% key="11-parallel-because"
because(
    "11.parallel",
    "Every place was computed in every pass. Why did most of those results have to go?",
    explain=(
        "A place's result is the model's answer to the tokens before it. As long as one of them is "
        "a wrong guess, it is the answer to another text. The first place is right after one pass, "
        "the second after two: the chain decides how many passes it takes, however many places "
        "each pass computes. Where several came right at once, they were luckily guessed."
    ),
)

# %% key="11-parallel-belief"
belief = misconception("11.parallel")
belief

# %% key="11-parallel-refute"
belief.refute()

# %% [markdown] key="11-parallel-grain-prose" lang="en"
# **The grain of truth**: if the tokens are *given*, all places do run together. With the finished
# answer as the guess, one pass confirms it whole. That is how a prompt is read, and how a draft
# model's guesses are checked.

# %% key="11-parallel-grain"
checked = refine(model, prompt, passes[-1])
print("one pass confirms", sum(a == b for a, b in zip(checked, passes[-1], strict=True)), "tokens")
wrong_first = [guess[0], *passes[-1][1:]]
kept = refine(model, prompt, wrong_first)
changed = sum(a != b for a, b in zip(kept, passes[-1], strict=True))
print("with only the first guess wrong,", changed, "of the other 23 come out otherwise")
assert checked == passes[-1] and kept[0] == passes[-1][0]

# %% [markdown] key="11-parallel-change" lang="en"
# **Change it.** Set `guess = model.tokenizer("return self." * 8)["input_ids"][:24]`. Does a guess
# that looks like code save passes? How would a draft model's guess do?

# %% key="11-parallel-retest"
quiz("11.retest.parallel")

# %% [markdown] key="11-context-prose" lang="en"
# ## 3. "The context's length has no effect on memory"
#
# A chat: every message has 24 tokens, every answer 16. The user sees short messages. But each turn
# sends the whole conversation again, and the pool counts what that holds.

# %% key="11-context-run"
(message,) = held_out_prompts(model.tokenizer, count=1, num_tokens=24, seed=3)
history, held = [], []
for turn in range(1, 9):
    history += message["prompt_token_ids"]
    llm = LLM(model, trace=True)
    (output,) = llm.generate({"prompt_token_ids": history}, greedy(16))
    history += output.outputs[0].token_ids
    held.append(llm.metrics.peak_kv_blocks_used)
    assert held[-1] == llm.pool.blocks_for(40 * turn - 1)  # the last token is not fed back
print("blocks held, turn by turn:", held)

# %% key="11-context-pool"
together, pool = {}, 40  # blocks
for turn in (4, 8):  # the same conversation, by eight users
    start = history[: 40 * turn - 16]
    tight = LLM(model, max_num_seqs=8, num_blocks=pool, trace=True)
    tight.generate([{"prompt_token_ids": start}] * 8, greedy(16))
    together[turn] = tight.metrics.max_batch_size
    print(f"turn {turn}: {len(start)} prompt tokens, {together[turn]} of 8 users served together")
    assert together[turn] == min(8, pool // held[turn - 1])
assert held[7] == 2 * held[3]

# %% key="11-context-figure"
title = "Eight users at turn 8: whose conversation fills the KV cache?"
show(plots.kv_block_map(tight.trace, title=title))

# %% key="11-context-reveal"
reveal("11.context", DISAGREE)

# %% key="11-context-because"
because(
    "11.context",
    "Nobody writes longer messages at turn 8 than at turn 4. Why do only half as many users fit?",
    explain=(
        "What is kept is the whole context: a key and a value in every layer for each token, read "
        "or written, of this turn or of an earlier one. Twice the turns are twice the tokens, and "
        "twice the blocks. The pool stays as large, so half as many conversations fit."
    ),
)

# %% key="11-context-belief"
belief = misconception("11.context")
belief

# %% key="11-context-refute"
belief.refute()

# %% [markdown] key="11-context-grain-prose" lang="en"
# **The grain of truth**: the weights do not grow, and beside them a short context is little. First
# the formula against the engine, then a 7B model in 16 bits on an A100, calculated.

# %% key="11-context-grain"
small = ModelSize.of("lab-target", model.model)
block_tokens = llm.pool.block_size
assert small.kv_bytes(block_tokens * held[-1]) == held[-1] * llm.capacity.block_bytes
seven = ModelSize.llama2_7b()
room = Deployment(seven, GPUS["A100"]).num_blocks(block_tokens) * block_tokens
for context in (128, 1024, 4096):
    share = seven.kv_bytes(context) / seven.weight_bytes
    print(f"{context:>5} tokens: KV of one request {share:5.1%} of the weights; ", end="")
    print(f"{room // context} requests fit")

# %% [markdown] key="11-context-change" lang="en"
# **Change it.** Set `pool = 80`. Who fits now at turn 4 and at turn 8? How large must the pool be
# for all eight at turn 16, and what else could a service do?

# %% key="11-context-retest"
quiz("11.retest.context")

# %% [markdown] key="11-optional-prose" lang="en"
# ## 4. "The KV cache is optional"
#
# One engine forgets all keys and values after each step; the other keeps them. The same prompt of
# 48 tokens, and answers of different lengths. What is counted is what the model really computes.


# %% key="11-optional-run"
def computed(scheduler, params):
    llm = LLM(model, scheduler=scheduler)
    llm.generate(prompts[0], params)
    return llm.metrics.computed_tokens


n = len(prompts[0]["prompt_token_ids"])
for count in (1, 2, 4, 16, 48):
    without, kept = (computed(each(), greedy(count)) for each in (ForgetfulScheduler, Scheduler))
    print(f"{count:>2} tokens out: {without:>5} computed without a cache, {kept:>3} with, ", end="")
    print(f"{without / kept:5.2f} times")
    assert without == sum(range(n, n + count)) and kept == n + count - 1  # n + (n+1) + ...

# %% key="11-optional-traces"
traces = {}
for name, scheduler in {"forgets": ForgetfulScheduler(), "keeps": Scheduler()}.items():
    llm = LLM(model, scheduler=scheduler, trace=True)
    llm.generate(prompts[0], greedy(16))
    traces[name] = llm.trace
show(plots.reuse_map(traces, title="Which tokens does each step compute, from the first one on?"))

# %% key="11-optional-reveal"
reveal("11.optional", DISAGREE)

# %% key="11-optional-because"
because(
    "11.optional",
    "At which length of the answer does the cache begin to matter, and why there?",
    explain=(
        "At two tokens. The first comes out of the pass over the prompt, cache or not. From the "
        "second on, a step without a cache computes everything before it again. The longer the "
        "prompt, the more each further token costs: already two tokens are almost twice the work."
    ),
)

# %% key="11-optional-belief"
belief = misconception("11.optional")
belief

# %% key="11-optional-refute"
belief.refute()

# %% [markdown] key="11-optional-grain-prose" lang="en"
# **The grain of truth**: some work ends after one pass. A label of one token; or *scoring*, how
# likely the model finds a text that is there already. Here the engine scores the prompt itself.

# %% key="11-optional-grain"
scoring = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
for name, params in {"one token": greedy(1), "scoring": scoring}.items():
    without, kept = (computed(each(), params) for each in (ForgetfulScheduler, Scheduler))
    print(f"{name}: {without} tokens computed without a cache, {kept} with one")
    assert without == kept == n

# %% [markdown] key="11-optional-change" lang="en"
# **Change it.** Set `num_tokens=192` where the prompts are made, run that cell and these. For which
# lengths of the answer does the factor rise, and for which does it stay?

# %% key="11-optional-retest"
quiz("11.retest.optional")

# %% [markdown] key="11-batch-prose" lang="en"
# ## 5. "A larger batch is always better"
#
# Two limits. First *memory*: 12 requests that each come to 4 blocks, and a KV cache of 12 blocks.
# Three fit to their end. What does a higher limit on the batch do?

# %% key="11-batch-run"
twelve = held_out_prompts(model.tokenizer, count=12, num_tokens=24)
counts = {}
for limit in (1, 2, 3, 4, 6):
    llm = LLM(model, max_num_seqs=limit, num_blocks=12, trace=True)
    llm.generate(twelve, greedy(40))
    counts[limit] = done = llm.metrics
    print(f"limit {limit}: {done.steps:>3} steps, {done.computed_tokens:>4} tokens, ", end="")
    print(f"{done.preemptions} times sent back")
assert counts[3].preemptions == 0 < counts[4].preemptions
assert counts[4].steps >= counts[3].steps and counts[4].computed_tokens > counts[3].computed_tokens

# %% key="11-batch-figure"
title = "Limit 6 on a cache for 3: who has to start again?"
show(plots.request_timeline(llm.trace, title=title))

# %% [markdown] key="11-batch-pace-prose" lang="en"
# Second, the *pace*. A 7B model on an L4, more requests than it can serve, and a promise: at most
# so many milliseconds a token. This is simulated: the engine's own scheduler, on steps that take
# what the data sheet allows. Move the slider (arrow keys work).

# %% key="11-batch-load"
runs = {limit: serve_on_gpu(limit) for limit in (2, 4, 8, 12, 16, 24, 32, 64)}
pace = SLO(tpot=0.1)
for limit, run in runs.items():
    print(f"limit {limit:>2}: {run.request_throughput:.2f} requests/s done, ", end="")
    print(f"{run.goodput(pace):.2f} at 100 ms a token or less")
show(plots.limit_goodput(runs, [0.07, 0.075, 0.08, 0.09, 0.1, 0.11, 0.12, 0.14, 0.2]))

# %% key="11-batch-check"
good = {limit: run.goodput(pace) for limit, run in runs.items()}
best = max(good, key=good.get)
print(f"limit {best} serves most in time; limit 64 does {runs[64].num_preemptions} preemptions")
assert 2 < best < 64 and good[64] < good[best]
assert runs[64].request_throughput > 0.99 * runs[best].request_throughput  # done, but too slowly

# %% key="11-batch-reveal"
reveal("11.batch", DISAGREE)

# %% key="11-batch-because"
because(
    "11.batch",
    "Throughput still rises where goodput has long fallen. What happens to a request there?",
    explain=(
        "It shares its steps with more others. Each step reads more keys and values and does more "
        "arithmetic, so each of its tokens comes later: the server does more in all, and each user "
        "gets it too slowly. And past the KV cache's room, some is done twice."
    ),
)

# %% key="11-batch-belief"
belief = misconception("11.batch")
belief

# %% key="11-batch-refute"
belief.refute()

# %% [markdown] key="11-batch-grain-prose" lang="en"
# **The grain of truth**: below both limits a larger batch does more with the same weights. Look at
# the first rows: from limit 1 to 3 the steps fell to a third, and nothing was computed twice.

# %% key="11-batch-grain"
assert counts[1].steps == 3 * counts[3].steps
assert counts[1].computed_tokens == counts[3].computed_tokens
good_rising = [good[limit] for limit in runs if limit <= best]
print("goodput up to the best limit:", [round(each, 2) for each in good_rising])
assert good_rising == sorted(good_rising)

# %% [markdown] key="11-batch-change" lang="en"
# **Change it.** Use `serve_on_gpu(limit, rate=1.0)`: half as many requests a second. Why do the
# limits from 24 on now keep more of the promise, and do the same as each other?

# %% key="11-batch-retest"
quiz("11.retest.batch")

# %% [markdown] key="11-after-prose" lang="en"
# ## Before and after
#
# On the left how far you held each belief before the runs: 100 is surely right, 0 surely wrong. On
# the right, how you answered the new question about it. Run the cell again after answering; arrow
# keys move the slider. Held before and right after: that belief has moved. Not right yet, or only
# at a later try: run that part once more.

# %% key="11-after"
asked = {
    "11.latency": ("1 latency", "11.retest.latency"),
    "11.parallel": ("2 parallel", "11.retest.parallel"),
    "11.context": ("3 context", "11.retest.context"),
    "11.optional": ("4 optional", "11.retest.optional"),
    "11.batch": ("5 batch", "11.retest.batch"),
}
changes = belief_changes(asked)
show(plots.belief_shift(changes))

# %% [markdown] key="11-catalogue-prose" lang="en"
# And all misconceptions of the course so far, with those that a run of yours has refuted:

# %% key="11-catalogue"
from llmserve_lab.course import misconceptions

misconceptions()

# %% [markdown] key="11-limits-prose" lang="en"
# ## What these runs do not show
#
# A counterexample refutes an *always*; it does not say how often. The model is small, and most
# counts are in steps and tokens, which are the same everywhere. How long a step takes, and so where
# the best batch lies, is your machine's matter: chapter 08 measures it.

# %% key="11-footer" tags=["hide"]
footer("11_misconceptions")
