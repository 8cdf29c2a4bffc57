# %% key="02-header" tags=["hide"]
from llmserve_lab.course import footer, header

header("02_latency")

# %% [markdown] key="02-problem" lang="en"
# ## The problem
#
# **Latency** is the time until a request is complete. Two stages make it up:
#
# $$T = T_\mathrm{prefill} + T_\mathrm{decode}$$
#
# $T_\mathrm{prefill}$ is the time to process the prompt, $T_\mathrm{decode}$ the time to generate
# the tokens. On a busy server a wait in the queue comes before both. Latency decides how fast a
# service feels. This chapter splits it, reads it over many users, and makes the usual mistakes in
# measuring it.

# %% key="02-imports"
import numpy as np

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import because, misconception, predict, quiz, reveal
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.plots import latency_split, percentile_picker, show, token_gaps
from llmserve_lab.simulate import LogNormal, Workload, run_live

# %% key="02-model"
model = load("lab-target")
prompts = {n: held_out_prompts(model.tokenizer, 1, n)[0] for n in (40, 400, 800)}
params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
print({n: len(prompt["prompt_token_ids"]) for n, prompt in prompts.items()}, "prompt tokens")

# %% [markdown] key="02-split-prose" lang="en"
# ## Experiment 1: split one request
#
# One request, alone on the engine: 400 tokens of prompt, 40 tokens of answer. The engine notes when
# the request arrived, when a step first ran it, and when each token was ready.

# %% key="02-split-predict"
question = "The prompt is ten times as long as the answer. What share of the time is decode?"
predict("02.decode-share", question, low=1, high=99, unit="%")

# %% key="02-split-run"
LLM(model).generate(list(prompts.values()), params)  # a run that nobody times: see experiment 4
llm = LLM(model, trace=True)
m = llm.generate(prompts[400], params)[0].metrics
print(len(m.token_times), "tokens in", len(llm.trace), "steps")
print("tokens in each step:", [step.num_tokens for step in llm.trace][:8], "...")
assert [step.num_tokens for step in llm.trace] == [400] + [1] * 39

# %% key="02-split-numbers"
queue = m.first_scheduled - m.arrival
prefill = m.token_times[0] - m.first_scheduled  # to the first token
decode = m.token_times[-1] - m.token_times[0]  # to the last
for name, seconds in {"queue": queue, "prefill": prefill, "decode": decode}.items():
    print(f"{name:8}{1000 * seconds:8.2f} ms  {seconds / m.e2e:6.1%}")
assert abs(queue + prefill + decode - m.e2e) < 1e-9

# %% key="02-split-figure"
served = {"400 in, 40 out": m}
for prompt, tokens in ((40, 40), (400, 4)):
    other = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    served[f"{prompt} in, {tokens} out"] = LLM(model).generate(prompts[prompt], other)[0].metrics
show(latency_split(served))

# %% key="02-split-reveal"
reveal("02.decode-share", 100 * decode / m.e2e)

# %% key="02-split-because"
because(
    "02.decode",
    "Why do 40 tokens of answer take so long beside 400 tokens of prompt?",
    explain=(
        "All 400 tokens of the prompt are known, so **one** step computes them side by side. Each "
        "later token needs a step of its own, and no step can begin before the one before it has "
        "said its token: generation is sequential. And a step for one token is not 400 times as "
        "short as one for 400, since it reads the same weights and calls the same layers."
    ),
)

# %% [markdown] key="02-split-change" lang="en"
# **Change it.** In the cell with the figure, replace `(400, 4)` by `(800, 4)`, then raise its 4
# until both parts are equally long. How many output tokens cost as much as 800 prompt tokens here?

# %% [markdown] key="02-feel-prose" lang="en"
# ## Experiment 2: what a user feels
#
# A chat shows tokens as they come. Three numbers describe that:
#
# - **TTFT**, time to first token: the wait before anything appears;
# - **TPOT**, time per output token: the mean gap after the first token;
# - the **inter-token gaps** themselves.
#
# Request A streams 40 tokens. After its 20th, request B arrives with a prompt of 800 tokens.

# %% key="02-feel-predict"
question = "What does B's arrival do to A's stream?"
outcomes = ["nothing: B waits", "one long pause", "all later gaps are longer"]
predict("02.stall", question, choices=outcomes, default=outcomes[2])

# %% key="02-feel-run"
llm = LLM(model, trace=True)
llm.add_request(prompts[40], params)
events = [event for _ in range(20) for event in llm.step()]
llm.add_request(prompts[800], params)
while llm.has_work:
    events += llm.step()
a = [event.seconds for event in events if event.request_id == events[0].request_id]
print(len(a), "tokens of A; tokens in steps 19 to 23:", [s.num_tokens for s in llm.trace][19:24])
assert len(a) == 40 and llm.trace[20].num_tokens == 801

# %% key="02-feel-figure"
alone = served["40 in, 40 out"].token_times
show(token_gaps({"A alone": alone, "A with B": a}))

# %% key="02-feel-numbers"
gaps = np.diff(a)
before, pause, after = np.median(gaps[:19]), gaps[19], np.median(gaps[20:])
for name, value in {"before": before, "at B's arrival": pause, "after": after}.items():
    print(f"{name:16}{1000 * value:7.2f} ms")
print(f"TPOT alone {1000 * np.diff(alone).mean():.2f} ms, with B {1000 * gaps.mean():.2f} ms")

# %% key="02-feel-reveal"
stalled = pause > 3 * max(before, after)
reveal("02.stall", outcomes[1] if stalled else outcomes[2])

# %% key="02-feel-because"
because(
    "02.pause",
    "Where did the pause come from, and why can TPOT not show it?",
    explain=(
        "The step after B's arrival ran 801 tokens: 800 of B's prompt and one of A's. A's token "
        "was ready when the whole step was. TPOT is a mean over 39 gaps: it spreads the pause over "
        "all of them, as if the stream had been a little slower throughout. What the reader felt "
        "is the largest gap, and what to report beside TPOT is a high percentile of the gaps."
    ),
)

# %% [markdown] key="02-feel-change" lang="en"
# **Change it.** Set `LLM(model, trace=True, max_num_batched_tokens=64)` in the run: the engine may
# then compute only so many tokens a step. What becomes of the pause, and of B's first token? (The
# assert on 801 will object: how many tokens does that step run now?)

# %% [markdown] key="02-spread-prose" lang="en"
# ## Experiment 3: many users, one number?
#
# 60 requests of different lengths, from 4 users who each send one when their last is done. Answers
# are mostly short and sometimes long, as in chats. The *99th percentile*, p99, is the latency that
# 99 of 100 requests do not exceed.

# %% key="02-spread-predict"
question = "How many times the mean latency is the p99 of these 60 requests?"
predict("02.p99", question, low=1, high=30, unit="times", log=True)

# %% key="02-spread-run"
lengths = LogNormal(60, 0.8, 4, 400), LogNormal(20, 1.0, 1, 200)  # of prompts, of answers
workload = Workload.closed_loop(60, *lengths, users=4, seed=1)
result = run_live(LLM(model), workload)
e2e = np.array(result.values("e2e"))
mean, median, p99 = e2e.mean(), np.median(e2e), np.percentile(e2e, 99)
print(f"{len(e2e)} requests: mean {mean:.2f} s, median {median:.2f} s, p99 {p99:.2f} s")
print(f"{np.mean(e2e > mean):.0%} of them took longer than the mean")
answers = [ask.output_tokens for ask in workload.asks]
assert np.median(answers) < np.mean(answers) < np.percentile(answers, 99) / 3

# %% [markdown] key="02-spread-keys" lang="en"
# Move the slider (arrow keys work). The dotted line is the mean: which percentile is it?

# %% key="02-spread-figure"
show(percentile_picker(e2e))

# %% key="02-spread-reveal"
reveal("02.p99", p99 / mean)

# %% key="02-spread-because"
because(
    "02.mean",
    "What does the mean tell a user, and what does it tell the owner of the machine?",
    explain=(
        "No latency is below the work itself, but long answers reach far up (and so do queues): a "
        "few slow requests pull the mean above most users' latency, and stay far above it. A user "
        "is one of the requests, so promises are percentiles. For capacity the mean is right: the "
        "mean times the arrival rate is how many requests are in the system (chapter 05)."
    ),
)

# %% [markdown] key="02-rank-prose" lang="en"
# ### Which percentile?
#
# There are several definitions. *Nearest rank* is the smallest measured value that at least $p$ per
# cent do not exceed. *Linear interpolation*, numpy's default and this engine's, goes on to a point
# between two measured values. With few requests they differ, and both hang on one request.

# %% key="02-rank"
for percent in (50, 95, 99):
    nearest = np.percentile(e2e, percent, method="inverted_cdf")
    linear = np.percentile(e2e, percent)
    print(f"p{percent}: nearest rank {nearest:.3f} s, linear {linear:.3f} s")
assert nearest == e2e.max()  # p99 of 60 requests is the slowest one
assert nearest in e2e and abs(linear - result.percentile("e2e", 99)) < 1e-9

# %% [markdown] key="02-timing-prose" lang="en"
# ## Experiment 4: four ways to measure wrong
#
# All numbers above came from the engine. Now you hold the clock yourself. The work is a *kernel*: a
# compiled loop on one core that, like a GPU's kernels, lets Python go on meanwhile.

# %% key="02-timing-imports"
import time
from itertools import pairwise

from numba import njit

from llmserve_lab.course.async_device import AsyncDevice
from llmserve_lab.plots import device_timeline


# %% key="02-kernel"
@njit(nogil=True)
def kernel(values, rounds):
    total = 0.0
    for _ in range(rounds):
        for value in values:
            total += value * value
    return total


# %% [markdown] key="02-warm-prose" lang="en"
# ### 1. The first call
#
# `njit` compiles when the function is first called, for the types that it sees. So do
# `torch.compile`, Triton and cuDNN's search for its best algorithm.

# %% key="02-warm"
values = np.ones(100_000)
for call in ("first", "second", "third"):
    began = time.perf_counter()
    kernel(values, 50)
    milliseconds = 1000 * (time.perf_counter() - began)
    print(f"{call:7}{milliseconds:8.2f} ms, compiled for {len(kernel.signatures)} type")
assert len(kernel.signatures) == 1
kernel(values.astype("float32"), 50)  # another type
assert len(kernel.signatures) == 2

# %% [markdown] key="02-warm-so" lang="en"
# So warm up first, **with the types and shapes that you will time**: another type compiled again.
# But if users meet the cold start, measure it too, and call it by its name.

# %% [markdown] key="02-sync-prose" lang="en"
# ### 2. An asynchronous device
#
# Python only *launches* work on a GPU; the GPU takes it from a queue and does it on its own. There
# may be no GPU here, so `AsyncDevice` stands in: a queue, and a thread that really runs the kernels
# meanwhile. `synchronize` waits until the queue is done, as `torch.cuda.synchronize` does.

# %% key="02-sync-predict"
question = "20 kernels are launched; then the clock is read. How many of them are done by then?"
predict("02.pending", question, low=0, high=20, step=1, unit="kernels")

# %% key="02-sync"
device = AsyncDevice()
began = device.clock()
for _ in range(20):
    device.launch(lambda: kernel(values, 50))
early, done = device.clock() - began, device.num_done
device.synchronize()
late = device.clock() - began
print(f"without synchronize {1000 * early:.2f} ms, {done} of 20 done")
print(f"with synchronize    {1000 * late:.2f} ms, {device.num_done} of 20 done")
assert device.num_done == 20 and done <= 20

# %% key="02-sync-figure"
readings = {"read too early": early, "read after synchronize": late}
show(device_timeline(device.kernels, began, readings))

# %% key="02-sync-reveal"
reveal("02.pending", done)

# %% key="02-sync-because"
because(
    "02.sync",
    "What did the early reading measure?",
    explain=(
        "How long Python takes to put 20 entries into a queue. Make the kernels ten times longer "
        "and it stays the same. A clock on an asynchronous device is read after `synchronize`, "
        "**both** times: at the start too, or work that was queued before is counted as yours. "
        "The engine's own stamps are safe: it cannot know a token before the logits are here."
    ),
)

# %% [markdown] key="02-short-prose" lang="en"
# ### 3. Less than a tick of the clock
#
# A clock moves in ticks. Here are the token times of experiment 1 once more, as a clock with ticks
# of 10 ms would have shown them.

# %% key="02-short"
tick = 0.010
ticks = [int(stamp // tick) for stamp in m.token_times]
shown = [after - before for before, after in pairwise(ticks)]
print("one gap reads", sorted({10 * gap for gap in shown}), "ms")
whole = (ticks[-1] - ticks[0]) * tick / 39
print(f"39 gaps in one reading: {1000 * whole:.2f} ms a gap; truly {1000 * m.tpot:.2f} ms")
assert abs(whole - m.tpot) <= tick / 39 + 1e-9
finest = time.get_clock_info("perf_counter").resolution
print(f"this machine's perf_counter ticks every {finest * 1e9:.0f} ns")

# %% [markdown] key="02-short-so" lang="en"
# One reading may be wrong by a whole tick, however short the work is. Over $n$ gaps the same error
# is shared: at most one tick divided by $n$. So time many repetitions in **one** reading, until it
# is hundreds of ticks long. And use `time.perf_counter`: `time.time` may tick more coarsely, and
# the system may set it back while you measure.

# %% [markdown] key="02-ratio-prose" lang="en"
# ### 4. The mean of ratios
#
# How many tokens per second did A get in experiment 2? Each gap gives a rate. Their mean looks
# like an answer.

# %% key="02-ratio"
mean_of_rates = np.mean(1 / gaps)
rate = len(gaps) / gaps.sum()
print(f"mean of {len(gaps)} rates {mean_of_rates:.0f} tokens/s")
print(f"tokens / seconds   {rate:.0f} tokens/s, which is 1 / TPOT")
assert mean_of_rates >= rate  # always: the arithmetic mean is never below the harmonic mean

# %% [markdown] key="02-ratio-so" lang="en"
# The mean of rates counts each *gap* once, so the long pause weighs as little as any short gap. The
# reader lived through *seconds*. Add up tokens, add up seconds, divide once.

# %% [markdown] key="02-belief-prose" lang="en"
# ## Two misconceptions, refuted by running them

# %% key="02-belief"
belief = misconception("02.average-is-felt")
belief

# %% key="02-refute"
belief.refute()

# %% key="02-belief-tpot"
belief = misconception("02.tpot-has-the-first")
belief

# %% key="02-refute-tpot"
belief.refute()

# %% [markdown] key="02-worse-prose" lang="en"
# ## What measuring made worse
#
# A timer that waits after *every* kernel slows down what it measures. Here the host prepares each
# launch, with work of its own that is as long as the device's.


# %% key="02-worse"
def serve(wait_each_time):
    device = AsyncDevice()
    began = device.clock()
    for _ in range(20):
        kernel(values, 100)  # the host prepares
        device.launch(lambda: kernel(values, 100))
        if wait_each_time:
            device.synchronize()
    device.synchronize()
    return 1000 * (device.clock() - began), device.num_synchronized


# %% key="02-worse-run"
for wait in (False, True):
    milliseconds, waits = serve(wait)
    print(f"synchronized {waits:>2} times: {milliseconds:4.0f} ms for the same 20 kernels")
assert waits == 21

# %% [markdown] key="02-worse-so" lang="en"
# Waiting each time, host and device take turns. Otherwise the host prepares one kernel while the
# device runs the one before: on two free cores that hides almost half of the work. So wait at both
# ends of what you time, not inside it.

# %% [markdown] key="02-whatif-prose" lang="en"
# ## What if it were a 7B model on an A100?
#
# The formula with the stages written out: one step for $n$ prompt tokens, then one for each further
# output token,
#
# $$T(n, k) = t_\mathrm{prefill}(n) + \sum_{i=1}^{k-1} t_\mathrm{decode}(n + i)$$
#
# First test it here: take both costs from experiment 1 and foretell a longer answer. A small
# difference is the growing context; a large one means that another program ran meanwhile.

# %% key="02-validate"
longer = SamplingParams(temperature=0, max_tokens=120, ignore_eos=True)
llm = LLM(model, trace=True)
real = llm.generate(prompts[400], longer)[0].metrics
foretold = prefill + (120 - 1) * m.tpot
print(f"calculated {foretold:.3f} s, measured {real.e2e:.3f} s")
assert len(llm.trace) == 1 + (120 - 1)  # the steps that the formula counts

# %% key="02-whatif"
from llmserve_lab.plots import latency_whatif
from llmserve_lab.simulate import GPUS, Deployment, ModelSize, StepLoad

seven = Deployment(ModelSize.llama2_7b(), GPUS["A100"])


def stages(prompt, answer):
    """Seconds of prefill and of decode: a floor, from the GPU's data sheet."""
    steps = (StepLoad.decode(1, prompt + i) for i in range(1, answer))
    return seven.seconds(StepLoad.prefill(prompt)), sum(map(seven.seconds, steps))


print("512 in, 256 out: prefill {:.3f} s, decode {:.3f} s".format(*stages(512, 256)))

# %% key="02-whatif-figure"
show(latency_whatif(stages))

# %% key="02-whatif-reading"
one_token = seven.seconds(StepLoad.decode(1, 512))
equal = seven.seconds(StepLoad.prefill(512)) / one_token
print(f"calculated: 512 prompt tokens take as long as {equal:.1f} output tokens")
assert stages(512, 256)[1] > stages(512, 256)[0]

# %% [markdown] key="02-whatif-change" lang="en"
# **Change it.** At which answer length does the prefill of 3,072 tokens stop being the larger part?
# Then put `GPUS["T4"]` into the cell before the figure: which of the two stages suffers more, and
# which column of its data sheet is to blame?

# %% key="02-quiz"
quiz("02.split")

# %% key="02-footer" tags=["hide"]
footer("02_latency")
