# %% key="08-header" tags=["hide"]
from llmserve_lab.course import header

header("08_latency_throughput_tradeoff")

# %% [markdown] key="08-problem" lang="en"
# ## The problem
#
# The batch size sets latency against throughput:
#
# | Strategy | Latency | Throughput |
# |---|---|---|
# | larger batch | rises | rises |
# | smaller batch | falls | falls |
#
# So the batch size is the knob that matters. Both rows are true, and neither says **how much**. You
# measure that, find the batch from which a doubling hardly pays, and choose one that keeps a
# promise.

# %% key="08-imports"
from llmserve_lab import LLM, load, measure_peak, plots, simulate
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal
from llmserve_lab.course.batch_sweep import measure_batches
from llmserve_lab.course.load_sweep import fitted_machine
from llmserve_lab.course.step_cost import fit_step_cost
from llmserve_lab.plots import show
from llmserve_lab.simulate import GPUS, SLO, Deployment, ModelSize, Poisson, Simulator, Workload

# %% [markdown] key="08-sweep-prose" lang="en"
# ## Experiment 1: up by eight, down by eight
#
# A decode step makes one token for each request in it. So its time is every user's *time per token*
# (TPOT), and batch / time is what the machine does. We time steps of eight batch sizes, in which
# each request has read a prompt of 32 tokens.
#
# Imagine a server that runs 8. It could go up to 64, or down to 1.

# %% key="08-predict-rows"
question = "Which move changes the time per token by the larger factor, and which the tokens/s?"
moves = [
    "up changes both by more",
    "up the time, down the tokens/s",
    "down the time, up the tokens/s",
    "down changes both by more",
]
predict("08.rows", question, choices=moves, default=moves[0])

# %% key="08-predict-knee"
sizes = [1, 2, 4, 8, 16, 32, 64, 128]
question = "From which batch size on does doubling give less than a third more, on the whole?"
predict("08.knee", question, choices=sizes[:-1], default=64)

# %% key="08-sweep"
model = load("lab-target")
measure_batches(model, [1, 16], context=32, rounds=1)  # warms up
short = measure_batches(model, sizes, context=32)
for point in short:
    print(point)

# %% key="08-rows"
at = {point.batch_size: point for point in short}
time_up, time_down = at[64].seconds / at[8].seconds, at[8].seconds / at[1].seconds
work_up = at[64].tokens_per_second / at[8].tokens_per_second
work_down = at[8].tokens_per_second / at[1].tokens_per_second
print(f"8 to 64: {time_up:.1f} times the time per token, {work_up:.1f} times the tokens/s")
print(f"8 to 1:  1/{time_down:.1f} of the time per token, 1/{work_down:.1f} of the tokens/s")

# %% key="08-rows-reveal"
reveal("08.rows", moves[2 * (time_down > time_up) + (work_down > work_up)])

# %% [markdown] key="08-parts-prose" lang="en"
# A step of $B$ requests has a part that is always there, and a part for each request:
#
# $$t(B) = \text{fixed} + \text{each} \cdot B, \qquad \text{tokens/s} = \frac{B}{t(B)}$$
#
# `fit_step_cost` draws the straight line through the steps. Is two numbers enough? Fit every second
# size, and look at the others.

# %% key="08-fit"
cost = fit_step_cost(sizes, [point.seconds for point in short])
print(f"fixed {1000 * cost.fixed:.2f} ms, each {1000 * cost.each:.3f} ms")
half = fit_step_cost(sizes[::2], [point.seconds for point in short[::2]])
for point in short[1::2]:
    calculated = 1000 * half.seconds(point.batch_size)
    print(f"batch {point.batch_size:>3}: {point.tpot_ms:6.2f} ms, {calculated:6.2f} by the others")

# %% key="08-curve"
show(plots.batch_curve(short, cost))

# %% key="08-gains"
doubled = {b: at[2 * b].tokens_per_second / at[b].tokens_per_second for b in sizes[:-1]}
for b, gain in doubled.items():
    print(f"{b:>3} to {2 * b:>3}: {gain:.2f} times the tokens/s")
knee = next((b for b in sizes[:-1] if b >= cost.knee), sizes[-2])
print(f"the line: fixed / each = {cost.knee:.1f}; less than a third more from batch {knee}")

# %% [markdown] key="08-bump" lang="en"
# Single doublings need not follow the line: with few rows an engine multiplies in another way than
# with many, and where it changes over, a step can cost more than its neighbours let expect. The
# line is what holds on the whole.

# %% key="08-knee-reveal"
reveal("08.knee", knee)

# %% key="08-because-knee"
because(
    "08.knee",
    "Why is there a knee, and why do you find it at fixed / each?",
    explain=(
        "At B = fixed / each both parts of the step are equal. Below, the fixed part is most of a "
        "step, and more requests share it: tokens/s grow almost like B, time hardly. Above, the "
        "requests' own parts are most: time grows almost like B, tokens/s hardly. At the knee a "
        "doubling gives 2(1 + 1)/(1 + 2), four thirds, and you have half of 1 / each, which no "
        "batch reaches."
    ),
)

# %% [markdown] key="08-rows-change" lang="en"
# **Change it.** Set `model = load("lab-draft")` and run from there. The draft model has fewer and
# smaller layers. Which of the two parts shrinks by more, and where does that put the knee?

# %% [markdown] key="08-context-prose" lang="en"
# ## Experiment 2: what is shared, and what is not
#
# Every step reads all weights, once for all its requests. And it reads the keys and values of each
# request, for that request alone. Now the same steps with prompts of 512 tokens.

# %% key="08-predict-context"
question = "With prompts of 512 tokens in place of 32: where will the knee be?"
places = ["at a smaller batch", "where it was (within 10%)", "at a larger batch"]
predict("08.context", question, choices=places, default=places[1])

# %% key="08-predict-intensity"
question = "There, from batch 1 to 16: how many times more operations for each byte moved?"
predict("08.intensity", question, low=1, high=32, unit="times", log=True)

# %% key="08-long"
long = measure_batches(model, [1, 2, 4, 8, 16], context=512)
long_cost = fit_step_cost([point.batch_size for point in long], [p.seconds for p in long])
for name, found in {"32": cost, "512": long_cost}.items():
    print(f"prompt {name:>3}: fixed {1000 * found.fixed:5.2f} ms, ", end="")
    print(f"each {1000 * found.each:.3f} ms, knee at {found.knee:.1f}")

# %% key="08-context-reveal"
moved = long_cost.knee / cost.knee
reveal("08.context", places[(moved > 0.9) + (moved > 1.1)])

# %% [markdown] key="08-bytes-prose" lang="en"
# The clock wavers; bytes do not. The engine counts what a step moves. It must be the weights once,
# and for each request the keys and values of its context, with those of the new token written.

# %% key="08-bytes"
work = ModelSize.of("lab-target", model.model).work
weights = work.weights_read(tokens=1, samples=1)
for point in (*short, *long):
    kv = (point.context + 1) * work.kv_bytes
    assert point.num_bytes == weights + point.batch_size * kv
print(f"weights {weights:,.0f} bytes a step; keys and values {work.kv_bytes:,.0f} a token")
for point in (long[0], long[-1]):
    per_token = point.num_bytes / point.batch_size
    print(f"batch {point.batch_size:>2}: {per_token:,.0f} bytes moved for a token")

# %% key="08-bytes-figure"
cases = {f"context {short[0].context}": short, f"context {long[0].context}": long}
each_kv = {case: (points[0].context + 1) * work.kv_bytes for case, points in cases.items()}
show(plots.token_reads(cases, weights, each_kv))

# %% key="08-intensity"
for case, points in cases.items():
    per_byte = {p.batch_size: round(p.flops / p.num_bytes, 1) for p in points[::2]}
    print(f"{case}, operations per byte: {per_byte}")
grown = (long[-1].flops / long[-1].num_bytes) / (long[0].flops / long[0].num_bytes)
reveal("08.intensity", grown)
assert 1 < grown < 16

# %% key="08-because-context"
because(
    "08.amortise",
    "Sixteen times the batch did not give sixteen times the operations per byte. Why?",
    explain=(
        "The weights' bytes are divided by the batch. Keys and values are not: each request brings "
        "its own, so a token costs at least those, at any batch. Where both lines cross, the batch "
        "reads as much KV as weights; beyond, a larger batch saves little. A longer context moves "
        "the crossing to smaller batches."
    ),
)

# %% [markdown] key="08-small-prose" lang="en"
# What the small model cannot show: on a processor, arithmetic for each request and the engine's own
# work count as well, so that time's knee need not lie at the crossing of the bytes. Below, what the
# bytes alone would take.

# %% key="08-small"
bandwidth = measure_peak().bytes_per_second
print(f"weights at {bandwidth / 1e9:.1f} GB/s: {1000 * weights / bandwidth:.2f} ms, ", end="")
print(f"fixed {1000 * cost.fixed:.2f} ms")
for case, found in zip(cases, (cost, long_cost), strict=True):
    floor = 1000 * each_kv[case] / bandwidth
    print(f"{case}: KV {floor:.3f} ms a request, each {1000 * found.each:.3f} ms")

# %% [markdown] key="08-promise-prose" lang="en"
# ## Experiment 3: the largest batch within a promise
#
# The promise: a time per token of at most 3 times that of a request alone. From the formula follows
# the largest batch, $B \le (\text{promise} - \text{fixed}) / \text{each}$. Move the slider (arrow
# keys work): where does a looser promise buy much, where little?

# %% key="08-promise"
promise = 3 * at[1].seconds
chosen = min(40, max(3, cost.largest(promise)))
print(f"at most {1000 * promise:.1f} ms: batch {chosen}, ", end="")
print(f"{cost.tokens_per_second(chosen):.0f} tokens/s by the formula")
factors = (1, 1.5, 2, 2.5, 3, 4, 6, 8, 12)
show(plots.promise_picker(short, cost, [factor * at[1].seconds for factor in factors]))

# %% [markdown] key="08-live-prose" lang="en"
# Now serve with that batch. Users in a closed loop keep every place taken: whoever is done asks
# again at once, with a prompt of 32 tokens, for 8 to 40.

# %% key="08-predict-live"
question = f"{chosen} users, at most {chosen} in a step: where will the median TPOT be?"
verdicts = ["within the promise", "above it by less than a quarter", "above it by more"]
predict("08.live", question, choices=verdicts, default=verdicts[0])


# %% key="08-live"
def closed_loop(users):
    llm = LLM(model, max_num_seqs=users, trace=True)
    asks = Workload.closed_loop(
        3 * users, simulate.Constant(32), simulate.Uniform(8, 40), users=users
    )
    run = simulate.run_live(llm, asks)
    assert run.num_output_tokens == asks.num_output_tokens
    assert max(len(step.scheduled) for step in run.trace) == users
    return run


# %% key="08-live-runs"
live = {users: closed_loop(users) for users in sorted({2, max(3, chosen // 2), chosen, 2 * chosen})}
for users, run in live.items():
    print(f"{users:>3} users: TPOT {1000 * run.percentile('tpot', 50):5.1f} ms, ", end="")
    print(f"TTFT p95 {1000 * run.percentile('ttft', 95):4.0f} ms, ", end="")
    print(f"{run.output_throughput:5.0f} tokens/s")

# %% key="08-live-reveal"
excess = live[chosen].percentile("tpot", 50) / promise
reveal("08.live", verdicts[(excess > 1) + (excess > 1.25)])

# %% key="08-mixed"
steps = [step for step in live[chosen].trace if step.scheduled]
read = sum(item.num_prompt_tokens for step in steps for item in step.scheduled)
mixed = sum(any(item.num_prompt_tokens for item in step.scheduled) for step in steps)
print(f"{mixed} of {len(steps)} steps also read prompts:")
print(f"{read} tokens, beside {live[chosen].num_output_tokens} that were generated")
kept = [users for users, run in live.items() if run.percentile("tpot", 50) <= promise]
print(f"largest batch here whose median kept the promise: {max(kept, default=None)}")
assert read == 3 * chosen * 32

# %% key="08-because-live"
because(
    "08.intrude",
    "The formula was fitted to decode steps. What do live steps hold besides?",
    explain=(
        "Prompts. Whoever is done makes room for a newcomer, and the step that reads the "
        "newcomer's prompt is longer for everybody in it. How much that adds depends on prompt "
        "tokens per output token, here 32 to about 24. So a batch chosen from decode steps alone "
        "is a first guess: choose on a run that mixes as your users do."
    ),
)

# %% [markdown] key="08-live-change" lang="en"
# **Change it.** In `closed_loop`, ask for `simulate.Uniform(48, 144)` output tokens. Prompts are
# now a smaller share of the work. What does that do to the gap between formula and live run?

# %% [markdown] key="08-open-prose" lang="en"
# ## Experiment 4: the batch as a limit
#
# Real users come when they like (an *open loop*). The engine's batch then follows the load;
# `max_num_seqs` only caps it. We simulate with the engine's own scheduler on a virtual clock, its
# step costs fitted to the live steps above. Load is the share of what a limit of 32 can do at most.

# %% key="08-predict-limit"
question = "At load 0.8, limit 2 in place of 32: how many times as long is the p95 of an answer?"
predict("08.limit", question, low=0.2, high=50, unit="times", log=True, default=0.6)

# %% key="08-machine"
machine = fitted_machine(LLM(model), live.values())
lengths = (
    simulate.LogNormal(32, 0.6, 8, 128),
    simulate.LogNormal(24, 0.5, 4, 64),
)  # of prompts, of answers
at_once = Workload.draw(150, *lengths, seed=2)
top = Simulator(machine, max_num_seqs=32).run(at_once).request_throughput
print(f"at most {top:.1f} requests/s with a limit of 32 (simulated)")


# %% key="08-open"
def open_loop(share, limit, count=150):
    workload = Workload.draw(count, *lengths, Poisson(share * top), seed=2)
    return Simulator(machine, max_num_seqs=limit).run(workload)


limits, loads = (2, 4, 8, 16, 32, 64), (0.2, 0.4, 0.6, 0.8, 1.0, 1.3)
runs = {share: {limit: open_loop(share, limit) for limit in limits} for share in loads}
print(len(loads) * len(limits), "runs of 150 requests")
assert len({run.num_output_tokens for row in runs.values() for run in row.values()}) == 1

# %% [markdown] key="08-open-test" lang="en"
# First a test: the same 50 requests live, with both limits.

# %% key="08-open-live"
for limit in (2, 32):
    workload = Workload.draw(50, *lengths, Poisson(0.8 * top), seed=2)
    real = simulate.run_live(LLM(model, max_num_seqs=limit), workload)
    twin = open_loop(0.8, limit, count=50)
    print(
        f"limit {limit:>2}: p95 of an answer {1000 * real.percentile('e2e', 95):5.0f} ms ", end=""
    )
    print(f"live, {1000 * twin.percentile('e2e', 95):5.0f} ms simulated")
    assert real.num_output_tokens == twin.num_output_tokens

# %% key="08-open-figure"
show(plots.limit_curves(runs))

# %% key="08-limit-reveal"
busy = runs[0.8]
reveal("08.limit", busy[2].percentile("e2e", 95) / busy[32].percentile("e2e", 95))

# %% key="08-because-limit"
because(
    "08.queue",
    "Steps of 2 are shorter than steps of 32. Why are the answers not?",
    explain=(
        "A smaller limit gives up tokens/s. Once it does less than is asked for, a queue forms and "
        "keeps growing: each token comes fast, the first one late. And where the limit is above "
        "what the load needs, raising it changes nothing: no more requests are there to run. So "
        "the limit is a throughput *and* a latency knob, and too small hurts both."
    ),
)

# %% [markdown] key="08-choose-prose" lang="en"
# A promise about both waits decides it. Here: first token within 40 steps of a request alone, then
# at most 3.5 such steps per token. *Goodput* counts the requests that got both, per second.

# %% key="08-choose"
slo = SLO(ttft=40 * at[1].seconds, tpot=3.5 * at[1].seconds)
for share in (0.4, 0.8, 1.0):
    good = {limit: run.goodput(slo) for limit, run in runs[share].items()}
    told = ", ".join(f"{limit}: {value:.1f}" for limit, value in good.items())
    print(f"load {share}, good requests/s by limit: most at {max(good, key=good.get)}")
    print("   ", told)
    assert all(good[limit] <= run.request_throughput for limit, run in runs[share].items())

# %% [markdown] key="08-choose-change" lang="en"
# **Change it.** Loosen one half: `tpot=8 * at[1].seconds`. Then loosen the other instead:
# `ttft=400 * at[1].seconds`. Which of the two moves the best limit up, which moves it down?

# %% [markdown] key="08-belief-prose" lang="en"
# ## Two misconceptions, refuted by running them

# %% key="08-belief-larger"
belief = misconception("08.larger-is-better")
belief

# %% key="08-refute-larger"
belief.refute()

# %% key="08-belief-smaller"
belief = misconception("08.smaller-is-faster")
belief

# %% key="08-refute-smaller"
belief.refute()

# %% [markdown] key="08-worse-prose" lang="en"
# ## What a larger batch made worse
#
# From the steps of experiment 1: what each doubling beyond the knee took from every user, and what
# it held in the KV cache, for the tokens/s that it brought.

# %% key="08-worse"
for b in (knee, *[size for size in sizes[:-1] if size > knee]):
    gain, slower = 100 * (doubled[b] - 1), 100 * (at[2 * b].seconds / at[b].seconds - 1)
    more = b * (at[b].context + 1) * work.kv_bytes / 2**20
    print(f"{b:>3} to {2 * b:>3}: {gain:+4.0f}% tokens/s, {slower:+4.0f}% time per token, ", end="")
    print(f"{more:+5.1f} MiB of KV")
assert at[128].num_bytes - weights == 128 * (at[128].context + 1) * work.kv_bytes

# %% [markdown] key="08-whatif-prose" lang="en"
# ## What if it were a 7B model on a GPU?
#
# The count of bytes was exact, so it may leave this machine; with data sheets in place of a clock,
# all of this is calculated and a *floor*. The weights' part is the larger of two: reading them, or
# multiplying every request with them. Up to some batch the arithmetic hides behind the reading.


# %% key="08-whatif"
def bound_by(model_size, gpu, step):
    seconds = {
        "weights": model_size.work.weights_read(step.tokens, step.samples) / gpu.bandwidth,
        "arithmetic": model_size.work.linear_flops(step.tokens, step.samples) / gpu.flops,
        "KV cache": model_size.work.kv_moved(step) / gpu.bandwidth,
    }
    return max(seconds, key=seconds.get)


seven = ModelSize.llama2_7b()
for name in ("T4", "A100", "H100", "H200"):
    hidden = GPUS[name].flops / GPUS[name].bandwidth * seven.bytes_per_value / 2
    print(f"{name:>4}: arithmetic hides behind the weights up to batch {hidden:.0f}")
    step = simulate.StepLoad.decode(int(hidden) + 1, context=1)
    assert bound_by(seven, GPUS[name], step) == "arithmetic"


# %% key="08-whatif-rows"
def calculate(gpu, context, model_size=seven):
    machine = Deployment(model_size, GPUS[gpu])
    most = machine.num_blocks(16) // -(-context // 16)  # as many as its memory holds
    rows = []
    for batch in sorted({most, *(2**i for i in range(14) if 2**i < most)}):
        step = simulate.StepLoad.decode(batch, context)
        tpot, bound = machine.seconds(step), bound_by(model_size, GPUS[gpu], step)
        rows.append({"batch": batch, "tpot_ms": 1000 * tpot, "bound": bound})
        rows[-1]["tokens_per_second"] = batch / tpot
    return rows


# %% key="08-whatif-figure"
show(
    plots.gpu_tradeoff(calculate, ["A100", "H200"], [128, 256, 512, 1024, 2048, 4096, 8192, 16384])
)

# %% key="08-whatif-reading"
for context in (128, 1024, 16384):
    last = calculate("A100", context)[-1]
    knee_bytes = seven.weight_bytes / seven.kv_bytes(context)
    print(f"context {context:>6}: as much KV as weights at batch {knee_bytes:.1f},")
    print(f"    memory full at {last['batch']}: {last['tpot_ms']:.0f} ms, mostly {last['bound']}")
bounds = [calculate("A100", context)[-1]["bound"] for context in (128, 1024, 16384)]
assert bounds == ["arithmetic", "KV cache", "KV cache"]

# %% [markdown] key="08-whatif-change" lang="en"
# **Change it.** Move the slider through the contexts from 512 on: which coordinate of the last mark
# hardly moves, and why? (A full memory is read once a step.) Then pass
# `lambda g, c: calculate(g, c, ModelSize.llama3_8b())`: a quarter of the KV for each token. What
# ends its batches at 512?

# %% key="08-quiz"
quiz("08.limit")

# %% key="08-footer" tags=["hide"]
footer("08_latency_throughput_tradeoff")
