# %% key="05-header" tags=["hide"]
from llmserve_lab.course import footer, header

header("05_throughput")

# %% [markdown] key="05-problem" lang="en"
# ## The problem
#
# **Throughput** is how many requests are done in a given time:
#
# $$\text{throughput} = \frac{\text{requests done}}{\text{time}}$$
#
# It can be counted in tokens too. A machine costs the same each hour, whatever it does, so
# throughput is what a request costs. But a high throughput can raise latency. This chapter finds
# out when, and which load is worth its money.

# %% key="05-imports"
from collections import Counter
from itertools import pairwise
from statistics import mean

from llmserve_lab import LLM, load
from llmserve_lab.course import because, misconception, predict, quiz, reveal
from llmserve_lab.course.load_sweep import LoadPoint, fitted_machine, sweep
from llmserve_lab.plots import goodput_picker, in_system, omission, saturation, show, token_cost
from llmserve_lab.simulate import SLO, Ask, LogNormal, Poisson, Simulator, Workload, run_live

# %% [markdown] key="05-capacity-prose" lang="en"
# ## What can this engine do at most?
#
# At most 8 requests run together. Give it 40 at once, so that it is never idle: what it does per
# second then is its *capacity*, for requests of these lengths: with answers twice as long it would
# be about half. Tokens per second depend less on the lengths.

# %% key="05-capacity"
model = load("lab-target")
lengths = LogNormal(48, 0.6, 8, 200), LogNormal(16, 0.6, 4, 64)  # of prompts, of answers
run_live(LLM(model, max_num_seqs=8), Workload.draw(8, *lengths))  # warms up
offline = run_live(LLM(model, max_num_seqs=8), Workload.draw(40, *lengths, seed=1))
capacity = offline.request_throughput
print(f"{capacity:.1f} requests/s, {offline.output_throughput:.0f} tokens/s")

# %% [markdown] key="05-little-prose" lang="en"
# ## Experiment 1: how many are under way?
#
# Now users come when they like: 40 requests at random times (a *Poisson process*), on average at
# nine tenths of the capacity. This is an *open loop*: nobody waits for anybody else's answer.

# %% key="05-little-predict"
question = "At nine tenths of the capacity, how many requests are in the system, on average?"
predict("05.in-system", question, low=0.5, high=64, unit="requests", log=True)


# %% key="05-live"
def live(share):
    workload = Workload.draw(40, *lengths, Poisson(share * capacity), seed=1)
    return run_live(LLM(model, max_num_seqs=8, trace=True), workload)


runs = {share: live(share) for share in (0.5, 0.9, 1.5)}
done = runs[0.9].finished
print(len(done), "requests done in", runs[0.9].num_steps, "steps")

# %% [markdown] key="05-little-law" lang="en"
# **Little's law** (1961) says, for any system that all who come also leave:
#
# $$L = \lambda W$$
#
# $L$: mean number in the system; $\lambda$: arrivals per second; $W$: mean time in the system, here
# the mean latency. Below, $L$ is counted from the coming and going alone.

# %% key="05-little"
came_and_went = [(m.arrival, 1) for m in done] + [(m.token_times[-1], -1) for m in done]
inside, area = 0, 0.0
for (now, change), (following, _) in pairwise(sorted(came_and_went)):
    inside += change
    area += inside * (following - now)
window = max(came_and_went)[0] - min(came_and_went)[0]
L, lam, W = area / window, len(done) / window, mean(m.e2e for m in done)
print(f"L = {L:.3f};  {lam:.2f} requests/s x {W:.3f} s = {lam * W:.3f}")
assert abs(L - lam * W) < 1e-9 * L

# %% key="05-little-figure"
show(in_system(done))

# %% key="05-little-reveal"
reveal("05.in-system", L)

# %% key="05-little-because"
because(
    "05.little",
    "Why must L be the arrival rate times the latency, whatever the scheduler does?",
    explain=(
        "Both are the same area. Row by row, each request adds its own latency: n times W in all. "
        "Moment by moment, the curve below adds how many there are: L times the window. Divide by "
        "the window: n / window is the arrival rate. No randomness is needed, and no fairness: "
        "only that everyone who came has left."
    ),
)

# %% [markdown] key="05-count-prose" lang="en"
# The law holds for every part of a system and every clock, so also for the batch, with one step as
# the unit of time. There it is exact in whole numbers: requests running, added up over steps, are
# steps, added up over requests.

# %% key="05-count"
trace = runs[0.9].trace
batch_sizes = [len(step.scheduled) for step in trace]
steps_of = Counter(item.request_id for step in trace for item in step.scheduled)
print("by steps", sum(batch_sizes), "; by requests", sum(steps_of.values()))
print(f"mean batch {mean(batch_sizes):.2f}, of 8 at most")
assert sum(batch_sizes) == sum(steps_of.values()) and max(batch_sizes) <= 8

# %% [markdown] key="05-curve-prose" lang="en"
# ## Experiment 2: more and more load
#
# The same 40 requests came at half of the capacity, at nine tenths, and at one and a half times it.

# %% key="05-curve-predict"
question = "From half of the capacity to one and a half: how many times longer is the p95 of TTFT?"
predict("05.ttft", question, low=1, high=1000, unit="times", log=True)

# %% key="05-rows"
for share, run in runs.items():
    print(
        f"load {share}: {run.request_throughput:5.1f} requests/s, "
        f"TTFT p95 {1000 * run.percentile('ttft', 95):6.0f} ms, "
        f"TPOT p50 {1000 * run.percentile('tpot', 50):5.1f} ms"
    )

# %% [markdown] key="05-fit-prose" lang="en"
# Three points make no curve, and 300 requests at 12 loads would take long. So the engine's own
# scheduler runs on a *virtual clock*: each step takes what a formula says, fitted to the steps just
# measured. First a test on the three workloads themselves. (What else a busy machine does is in the
# measured numbers only: there the two can lie far apart.)

# %% key="05-fit"
machine = fitted_machine(LLM(model), runs.values())
for share, run in runs.items():
    workload = Workload.draw(40, *lengths, Poisson(share * capacity), seed=1)
    twin = Simulator(machine, max_num_seqs=8).run(workload)
    print(f"load {share}: TTFT p95 {1000 * run.percentile('ttft', 95):5.0f} ms measured, ", end="")
    print(f"{1000 * twin.percentile('ttft', 95):5.0f} ms simulated")
    assert twin.num_output_tokens == run.num_output_tokens

# %% [markdown] key="05-sweep-prose" lang="en"
# The simulated machine gets a capacity of its own, found as before: all requests at once.


# %% key="05-sweep"
def random_arrivals(rate):
    return Workload.draw(300, *lengths, Poisson(rate), seed=2)


at_once = Workload.draw(300, *lengths, seed=2)
top = Simulator(machine, max_num_seqs=8).run(at_once).request_throughput
loads = [0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5]
points = sweep(machine, loads, top, random_arrivals, max_num_seqs=8)
print(f"simulated capacity {top:.1f} requests/s, measured {capacity:.1f}")

# %% key="05-curve"
measured = [LoadPoint(share, share * capacity, run) for share, run in runs.items()]
show(saturation(points, measured))

# %% [markdown] key="05-curve-note" lang="en"
# Forty requests are a short run: its end, when only a few are left, counts too. So the measured
# throughput at a high load stays below the line, which stands for 300.

# %% key="05-curve-reveal"
reveal("05.ttft", runs[1.5].percentile("ttft", 95) / runs[0.5].percentile("ttft", 95))

# %% key="05-curve-because"
because(
    "05.queue",
    "Why does waiting begin to grow before the capacity is reached, and what happens beyond it?",
    explain=(
        "Arrivals are random: for a moment more come than can be served, and a queue forms. The "
        "slack, capacity minus load, is what empties it. With little slack a queue outlives the "
        "next burst, so waiting grows like 1 / slack. Beyond the capacity it never empties: the "
        "wait then depends on how long you look. That is why 300 simulated requests wait longer at "
        "load 1.5 than 40 measured ones: the last of them have more before them."
    ),
)

# %% [markdown] key="05-curve-change" lang="en"
# **Change it.** In `live`, draw 80 requests instead of 40 and run from there. Which of the three
# loads has another TTFT now, and which has not?

# %% [markdown] key="05-good-prose" lang="en"
# ## Experiment 3: throughput that counts
#
# A *service level objective* (SLO) is a promise for each request, such as a first token in time and
# a steady pace. **Goodput** counts only requests that kept it, per second (DistServe, 2024). The
# promise here is set from the run at half load: 4 times its usual TTFT, 3 times its usual TPOT.

# %% key="05-good-predict"
question = "At one and a half times the capacity: what share of requests keeps this promise?"
predict("05.attainment", question, low=0, high=100, unit="%")

# %% key="05-good"
calm = runs[0.5]
slo = SLO(ttft=4 * calm.percentile("ttft", 50), tpot=3 * calm.percentile("tpot", 50))
print(f"TTFT at most {1000 * slo.ttft:.0f} ms, TPOT at most {1000 * slo.tpot:.0f} ms")
for share, run in runs.items():
    print(f"load {share}: {run.request_throughput:5.1f} done, {run.goodput(slo):5.1f} in time")
    assert run.goodput(slo) <= run.request_throughput

# %% key="05-good-reveal"
reveal("05.attainment", 100 * runs[1.5].attainment(slo))

# %% [markdown] key="05-good-keys" lang="en"
# Move the slider (arrow keys work): how strict may the promise be before the best load falls?

# %% key="05-good-figure"
limits = [factor * slo.ttft for factor in (0.25, 0.35, 0.5, 0.7, 1, 1.5, 2, 4, 8, 16)]
show(goodput_picker(points, slo, limits))

# %% key="05-good-because"
because(
    "05.collapse",
    "Why does goodput collapse beyond the capacity, when the machine works as hard as before?",
    explain=(
        "The queue grows with every request, and first come, first served hands the delay on to "
        "everyone behind. Soon each request starts later than promised: the machine is busy with "
        "answers that are late already. Refusing some at the door would keep the others in time."
    ),
)

# %% [markdown] key="05-loop-prose" lang="en"
# ## Experiment 4: who waits for whom
#
# In a *closed loop* a fixed number of users each send when their last answer is there. 8 such users
# keep all 8 places busy.

# %% key="05-loop"
closed = run_live(LLM(model, max_num_seqs=8), Workload.closed_loop(40, *lengths, users=8, seed=1))
for name, run in {"closed loop, 8 users": closed, "open loop, load 1.5": runs[1.5]}.items():
    print(f"{name}: {run.request_throughput:.1f} requests/s, ", end="")
    print(f"TTFT p95 {1000 * run.percentile('ttft', 95):.0f} ms")
first_eight = sorted(m.arrival for m in closed.finished)[:8]
assert len(set(first_eight)) == 1  # the others had to wait for an answer

# %% [markdown] key="05-loop-so" lang="en"
# About the same work per second (on a quiet machine), another wait. By Little's law a closed loop
# has $\lambda = N / W$: when the server slows down, its users send less, and the overload never
# shows. Real users mostly come as an open loop.

# %% [markdown] key="05-omit-prose" lang="en"
# ### Coordinated omission
#
# A load generator should send a request every so often: 40 of them, one at a time. Number 10 has a
# long answer and blocks the server. A generator that waits for it sends the next ones late. If it
# then times each from its *sending*, the wait before that is in no report.

# %% key="05-omit-predict"
question = "How many of the 40 take more than three times the usual, timed from when they were due?"
predict("05.omission", question, low=1, high=40, step=1, unit="requests")

# %% key="05-omit"
one_by_one = run_live(LLM(model, max_num_seqs=1), Workload(tuple([Ask(0, 16, 4)] * 10)))
usual = one_by_one.seconds / 10
asks = tuple(Ask(2 * usual * i, 16, 80 if i == 9 else 4) for i in range(40))
run = run_live(LLM(model, max_num_seqs=1), Workload(asks))
due = [m.e2e for m in run.finished]  # from the time in the plan
sent = [m.e2e - m.queue_time for m in run.finished]  # from when the server was free for it
slow_due, slow_sent = (sum(t > 3 * usual for t in times) for times in (due, sent))
print(f"slow when timed from the plan: {slow_due} of 40; from the sending: {slow_sent}")
assert all(a >= b for a, b in zip(due, sent, strict=True))

# %% key="05-omit-figure"
show(omission(due, sent))

# %% key="05-omit-reveal"
reveal("05.omission", slow_due)

# %% key="05-omit-because"
because(
    "05.omitted",
    "Which users are missing from the report of a generator that waits?",
    explain=(
        "Those who would have come while the server was busy with number 10. The generator sent "
        "their requests later, when the server was free again, and started their clocks then: the "
        "server's own slowness kept it from measuring it. Time each request from when it was "
        "**due**, as MLPerf and this engine's `run_live` do."
    ),
)

# %% [markdown] key="05-belief-prose" lang="en"
# ## Two misconceptions, refuted by running them

# %% key="05-belief"
belief = misconception("05.total-is-mine")
belief

# %% key="05-refute"
belief.refute()

# %% key="05-belief-full"
belief = misconception("05.full-load")
belief

# %% key="05-refute-full"
belief.refute()

# %% [markdown] key="05-worse-prose" lang="en"
# ## What throughput made worse
#
# From the same live runs: what the machine did per second, and what that was for one user.

# %% key="05-worse"
for share, run in runs.items():
    user = 1 / run.percentile("tpot", 50)
    total, longest = run.output_throughput, run.percentile("e2e", 95)
    print(f"load {share}: machine {total:4.0f} tokens/s, a user {user:4.0f}, ", end="")
    print(f"latency p95 {longest:.2f} s")
late = {share: sum(not slo.met_by(m) for m in run.finished) for share, run in runs.items()}
print("late answers, of 40:", late)

# %% [markdown] key="05-cost-prose" lang="en"
# ## What if it were a 7B model on an A100?
#
# A GPU costs a price per hour. Per million tokens that is
#
# $$\text{cost} = \frac{\text{price per hour}}{3600 \cdot \text{tokens/s}} \cdot 10^6$$
#
# Test it on the run at full load, whose hours and tokens you know. **Put in your own price.**

# %% key="05-cost"
price = 2.0  # for an hour; an example, not an offer


def per_million(tokens_per_second):
    return price / 3600 / tokens_per_second * 1e6


run = runs[1.5]
bill = price * run.seconds / 3600
rate = run.output_throughput
print(f"{run.num_output_tokens} tokens cost {bill:.6f}; a million {per_million(rate):.2f}")
assert abs(per_million(rate) - bill / run.num_output_tokens * 1e6) < 1e-6

# %% [markdown] key="05-whatif-prose" lang="en"
# Now the simulator with an A100's data sheet, of which 70% of the bandwidth and half of the FLOP/s
# are reached (an assumption). The promise: TTFT within 0.5 s, TPOT within 50 ms.

# %% key="05-whatif"
from llmserve_lab.simulate import GPUS, Deployment, ModelSize

gpu = Deployment(ModelSize.llama2_7b(), GPUS["A100"], bandwidth_share=0.7, flops_share=0.5)
chat = LogNormal(256, 0.8, 16, 1500), LogNormal(96, 0.7, 8, 400)
promise = SLO(ttft=0.5, tpot=0.05)
at_once = Workload.draw(300, *chat, seed=3)
full = Simulator(gpu, max_num_seqs=32).run(at_once).request_throughput
print(f"capacity {full:.1f} requests/s (simulated)")


# %% key="05-whatif-sweep"
def random_chats(rate):
    return Workload.draw(300, *chat, Poisson(rate), seed=3)


shares = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3)
a100 = sweep(gpu, shares, full, random_chats, max_num_seqs=32)
for point in a100[::4]:
    print(f"load {point.load}: {point.result.output_throughput:.0f} tokens/s, ", end="")
    print(f"{point.result.attainment(promise):.0%} in time")

# %% key="05-whatif-cost"
every = [per_million(point.result.output_throughput) for point in a100]
good = []
for point, cost in zip(a100, every, strict=True):
    tokens = [len(m.token_times) for m in point.result.finished if promise.met_by(m)]
    kept = sum(tokens) / point.result.num_output_tokens
    good.append(cost / kept if kept else None)
show(token_cost(shares, every, good))

# %% key="05-whatif-reading"
least, best = min((paid, load) for paid, load in zip(good, shares, strict=True) if paid)
print(f"every token is cheapest at load {shares[every.index(min(every))]}: {min(every):.2f}")
print(f"a token in time is cheapest at load {best}: {least:.2f}")
if good[-1]:
    print(f"at load {shares[-1]} a token in time costs {good[-1] / least:.1f} times as much")
assert all(paid is None or paid >= cost for paid, cost in zip(good, every, strict=True))

# %% [markdown] key="05-whatif-change" lang="en"
# **Change it.** Put `GPUS["H100"]` there, and 1.6 times the price. Which of the two curves decides
# whether it pays? Then make the promise stricter, `ttft=0.1`: what does it do to the cheapest load?

# %% key="05-quiz"
quiz("05.operating-point")

# %% key="05-footer" tags=["hide"]
footer("05_throughput")
