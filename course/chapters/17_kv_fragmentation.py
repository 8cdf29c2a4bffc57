# %% key="17-header" tags=["hide"]
from llmserve_lab.course import header

header("17_kv_fragmentation")

# %% [markdown] key="17-problem" lang="en"
# ## The problem
#
# A request's KV cache grows with every token, and nobody knows how long its answer gets. So servers
# used to **reserve** memory for the longest possible request, in one piece. Then
#
# - short requests leave reserved memory empty: **internal fragmentation and reservation**;
# - requests that come and go leave gaps between each other: **external fragmentation**.
#
# Both limit batch size and throughput. Here you count by how much.

# %% key="17-imports"
from textwrap import fill

import torch

from llmserve_lab import LLM, ReservingScheduler, Scheduler, load
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal
from llmserve_lab.course.compacting import CompactingScheduler
from llmserve_lab.course.completions import completions
from llmserve_lab.course.guessing import GuessingScheduler
from llmserve_lab.course.past import with_past
from llmserve_lab.course.slot_use import SlotUse, slot_uses
from llmserve_lab.kv_cache import ContiguousKVCache, KVShape, OutOfMemoryError
from llmserve_lab.plots import batch_lines, contiguous_map, reservation_fill, show, slot_use_areas
from llmserve_lab.simulate import Deployment, Gpu, ModelSize, StepLoad

# %% [markdown] key="17-maximum-prose" lang="en"
# ## Experiment 1: reserve for the longest
#
# Real lengths: 40 functions from library files that the model never saw. A prompt is a function's
# signature and docstring, and the request asks for as many tokens as its real body has. The server
# does not know that number. It reserves the 256 tokens that it allows at most.

# %% key="17-requests"
longest, num_blocks, size = 256, 64, 16  # tokens allowed; blocks of 16 slots
slots = num_blocks * size
model = load("lab-target")
requests = completions(model.tokenizer, count=40, longest=longest, seed=2)
prompts, params = [r.prompt for r in requests], [r.params for r in requests]
lengths = sorted(r.num_tokens for r in requests)
print(f"{len(requests)} requests of {lengths[0]} to {lengths[-1]} tokens, half below {lengths[20]}")
print(f"{slots:,} slots: room for {slots // longest} reservations of {longest}")
assert lengths[20] < longest / 2

# %% key="17-predict-used"
question = "Over the whole run: what share of the reserved slots holds a token, on average?"
predict("17.used", question, low=1, high=100, unit="%", default=50)


# %% key="17-serve"
def serve(scheduler, model=model):
    """All requests on the same memory, to their end: the engine that served them."""
    llm = LLM(model, scheduler=scheduler, num_blocks=num_blocks, max_model_len=longest, trace=True)
    llm.generate(prompts, params)
    return llm


maximum = ReservingScheduler()  # reserves max_model_len tokens in one piece
reserved = serve(maximum)
done = reserved.metrics
print(f"{done.steps:,} steps, at most {done.max_batch_size} requests in one of them")
assert done.max_batch_size == slots // longest

# %% key="17-fill"
show(reservation_fill(requests, longest))

# %% [markdown] key="17-terms" lang="en"
# Step by step, a slot is one of these (after Kwon et al. 2023, section 3.1):
#
# | Slot | Name |
# |---|---|
# | *used*: holds a token | |
# | reserved, a token comes *later* | reservation |
# | reserved, *never* used | internal fragmentation |
# | free, outside the largest run | external fragmentation |
#
# Whether an empty reserved slot is "later" or "never" is known only when its request has ended.

# %% key="17-maximum"
total = SlotUse.sum(slot_uses(maximum.maps))  # slots x steps
for part in ("used", "later", "never"):
    print(f"{part:>6}: {getattr(total, part) / total.reserved:6.1%} of the reserved slots")
assert total.used + total.later + total.never == total.reserved

# %% key="17-maximum-figure"
show(slot_use_areas(slot_uses(maximum.maps)))

# %% key="17-reveal-used"
reveal("17.used", 100 * total.used / total.reserved)

# %% [markdown] key="17-maximum-step" lang="en"
# The same memory as a map, one row after another. Move the slider (arrow keys work): each
# reservation fills up slowly, and most of them end long before they are full.

# %% key="17-maximum-map"
show(contiguous_map(maximum.maps))

# %% key="17-because-unknown"
because(
    "17.unknown",
    "Why does the server reserve 256 slots for a request that will need 60?",
    explain=(
        "It cannot know: an answer ends where the model writes its end token. And a reservation "
        "cannot simply grow, since the slots behind it belong to the next request. In one piece, "
        "the only length that is always enough is the **longest** one."
    ),
)

# %% [markdown] key="17-maximum-change" lang="en"
# **Change it.** Set `longest = 512`, with the same `num_blocks`, and run from there. How many
# requests run together now, and which of the three shares grows?

# %% [markdown] key="17-exact-prose" lang="en"
# ## Experiment 2: if the length were known
#
# Suppose someone told the server how long each answer gets. It then reserves exactly that, in whole
# blocks. But for that rounding, no slot is reserved in vain.

# %% key="17-predict-exact"
question = "What share of the reserved slots holds a token then, on average over the run?"
predict("17.exact", question, low=1, high=100, unit="%", default=95)

# %% key="17-exact"
exact = ReservingScheduler(to_model_len=False)  # prompt and max_tokens, in one piece
told = serve(exact)
known = SlotUse.sum(slot_uses(exact.maps))
for part in ("used", "later", "never"):
    print(f"{part:>6}: {getattr(known, part) / known.reserved:6.1%} of the reserved slots")
print(f"{told.metrics.steps:,} steps, at most {told.metrics.max_batch_size} requests in one")

# %% key="17-exact-figure"
show(slot_use_areas(slot_uses(exact.maps)))

# %% key="17-reveal-exact"
reveal("17.exact", 100 * known.used / known.reserved)

# %% [markdown] key="17-formula-prose" lang="en"
# By formula: a request with a prompt of $p$ tokens and an answer of $a$ runs for $a$ steps. After
# the first it holds $p$ tokens, then one more in each:
#
# $$\text{used slots} \times \text{steps} = a \cdot p + \frac{a (a - 1)}{2}$$

# %% key="17-formula"
pairs = [(len(r.prompt_token_ids), r.num_output_tokens) for r in requests]
calculated = sum(a * p + a * (a - 1) // 2 for p, a in pairs)
print(f"{calculated:,} slots x steps calculated, {known.used:,} counted, {total.used:,} before")
assert calculated == known.used == total.used
held = calculated / sum(a for _, a in pairs)
print(f"so a running request holds {held:.0f} tokens on average")

# %% key="17-because-later"
because(
    "17.later",
    "The reservation is exactly right. Why is so much of it still empty?",
    explain=(
        "It is full only in the request's **last** step. The prompt fills its part at once, the "
        "answer one slot a step: on average half of the answer's slots wait. That is no loss for "
        "ever, but nobody else can use them in the meantime."
    ),
)

# %% [markdown] key="17-holes-prose" lang="en"
# ## Experiment 3: holes
#
# Now reservations of different lengths, by hand, with real keys and values. `ContiguousKVCache` has
# 64 slots. Five requests come and fill it; then two of them leave.

# %% key="17-predict-piece"
question = "32 of the 64 slots are free again. What is the longest reservation that finds a place?"
predict("17.piece", question, low=1, high=32, step=1, unit="slots", default=32)

# %% key="17-come"
config, device = model.model.config, model.model.device
cache = ContiguousKVCache(KVShape.of(config), 64, model.model.dtype, device)
text = max((r.prompt_token_ids for r in requests), key=len)  # something to read
moments = {}


def come(name, length, num_tokens):
    """Reserve `length` slots, and compute and store the keys and values of `num_tokens`."""
    cache.allocate(name, length)
    past = with_past(model.model, torch.tensor([text[:num_tokens]], device=device))[1]
    place = cache.append(name, num_tokens)
    for index, layer in enumerate(past.layers):  # (1, KV heads, tokens, head dimension)
        cache.write(index, place, layer.keys[0].transpose(0, 1), layer.values[0].transpose(0, 1))
    moments[f"{name} comes"] = cache.snapshot()


# %% key="17-gaps"
for name, length, used in (("A", 12, 9), ("B", 16, 13), ("C", 12, 12), ("D", 16, 6), ("E", 8, 5)):
    come(name, length, used)
for name in "BD":
    cache.free(name)
    moments[f"{name} leaves"] = cache.snapshot()
print(cache.snapshot())  # a letter where a token is, _ where one could come, . where it is free

# %% key="17-refused"
try:
    cache.allocate("F", 24)
except OutOfMemoryError as error:
    print(fill(str(error), 72))
    assert error.fragmented
now = cache.snapshot()
print(f"external fragmentation: {now.external_fragmentation:.0%} of {now.num_free} free slots")

# %% key="17-gaps-map"
show(contiguous_map(list(moments.values()), list(moments), title="Where is room for 24 slots?"))

# %% key="17-reveal-piece"
reveal("17.piece", now.largest_free_run)

# %% [markdown] key="17-piece-prose" lang="en"
# Why in one piece? Attention kernels of the time took a request's keys as **one tensor**: a start,
# and rows behind each other. So did memory: a tensor is one range of addresses.

# %% key="17-piece"
keys, values = cache.read(0, "C")
start = cache.region("C").start
print(f"keys of C in layer 0: {tuple(keys.shape)}, (tokens, KV heads, head dimension)")
print("they lie where the cache has them:", keys.data_ptr() == cache.keys[0][start].data_ptr())
assert keys.is_contiguous() and keys.data_ptr() == cache.keys[0][start].data_ptr()

# %% [markdown] key="17-run-prose" lang="en"
# So much by hand. What happened in the run of experiment 2, whose 40 reservations were of
# different lengths too? In most steps the next request in the queue found no place. Either too
# little was free, or it was free in the wrong pieces.

# %% key="17-predict-blocked"
question = "In what share of those steps were there enough free slots in total?"
predict("17.blocked", question, low=0, high=100, unit="%", default=10)

# %% key="17-blocked"
turned = [error for error in exact.refusals if error is not None]
blocked = [error for error in turned if error.fragmented]
print(f"in {len(turned)} of {len(exact.refusals)} steps the next request found no place;")
print(f"in {len(blocked)} of them enough slots were free in total")
assert len(turned) > len(exact.refusals) / 2
worst = max(blocked, key=lambda error: error.num_free)
print(fill(f"for example: {worst}", 72))
assert worst.largest_free_run < worst.wanted <= worst.num_free

# %% key="17-blocked-map"
show(contiguous_map(exact.maps, title="Where are the holes, and who fits into them?"))

# %% key="17-reveal-blocked"
reveal("17.blocked", 100 * len(blocked) / len(turned))

# %% key="17-equal"
equal = [error for error in maximum.refusals if error is not None and error.fragmented]
print(f"with equal reservations, in experiment 1: {len(equal)} such steps")
assert not equal

# %% key="17-because-holes"
because(
    "17.holes",
    "Freed slots join their free neighbours at once. Why are there holes that fit nobody?",
    explain=(
        "Neighbours leave at **different times**, so what is freed lies between others that stay. "
        "The next request is seldom as long as the hole: it takes a part and leaves a rest. With "
        "equal lengths every hole fits. So fitting reservations trade one waste for the other."
    ),
)

# %% [markdown] key="17-holes-change" lang="en"
# **Change it.** Set `exact = ReservingScheduler("best", to_model_len=False)` in experiment 2 and
# run from there. Best fit takes the *shortest* hole that is long enough. How much does it help, and
# what becomes of the rests?

# %% [markdown] key="17-cap-prose" lang="en"
# ## Experiment 4: what it caps
#
# Now the same requests on the same slots once more, with the engine's own scheduler. It takes a
# block of 16 slots when a request needs one, wherever one is free. (How that works is the next
# chapter.)

# %% key="17-predict-batch"
question = "Against reserving the longest: how many times as many run together, on average?"
predict("17.batch", question, low=1, high=40, unit="times", log=True, default=2)

# %% key="17-cap"
paged = serve(Scheduler())
runs = {"the longest, reserved": reserved, "the exact, reserved": told, "blocks as needed": paged}
print(f"{'':<22}{'most':>5}{'mean':>6}{'steps':>7}{'tokens/step':>13}{'seconds':>9}")
for name, llm in runs.items():
    done = llm.metrics
    rate = done.generation_tokens / done.steps
    print(f"{name:<22}{done.max_batch_size:>5}{done.mean_batch_size:>6.1f}{done.steps:>7,}", end="")
    print(f"{rate:>13.1f}{done.seconds:>9.1f}")
steps = [llm.metrics.steps for llm in runs.values()]
assert steps == sorted(steps, reverse=True)
assert len({llm.metrics.generation_tokens for llm in runs.values()}) == 1

# %% key="17-cap-figure"
show(batch_lines({name: [len(s.scheduled) for s in llm.trace] for name, llm in runs.items()}))

# %% key="17-reveal-batch"
reveal("17.batch", paged.metrics.mean_batch_size / reserved.metrics.mean_batch_size)

# %% key="17-because-cap"
because(
    "17.cap",
    "No request computes more or less than before. Why does memory decide the tokens per second?",
    explain=(
        "A step reads all weights once, for all requests in it. How many those can be is memory "
        "divided by what each of them **holds**, used or not. Hold eight times as much as you use, "
        "and an eighth of the requests share each reading. So waste in memory is waste in time."
    ),
)

# %% [markdown] key="17-cap-change" lang="en"
# **Change it.** Set `num_blocks = 128` in experiment 1 and run from there. Twice the memory: whose
# batch doubles, whose does not, and what is it that runs out then?

# %% [markdown] key="17-move-prose" lang="en"
# ## Why not simply move them together?
#
# That is *compaction*. Every reservation slides to the front, with its keys and values in all
# layers, and what is free becomes one piece.

# %% key="17-move"
before = cache.read(0, "E")[0].clone()
moves = cache.compact()
moved = sum(region.used for region, _ in moves)
token_bytes = KVShape.of(config).bytes_per_token(model.model.dtype.itemsize)
print(cache.snapshot())
print(f"{moved} tokens of {token_bytes:,} bytes moved: {moved * token_bytes:,} bytes")
cache.allocate("F", 24)
print(cache.snapshot())
assert torch.equal(cache.read(0, "E")[0], before)

# %% key="17-predict-moved"
question = "A server moves whenever only holes keep a request out: tokens copied per new token?"
predict("17.moved", question, low=0.01, high=100, unit="tokens", log=True, default=0.1)

# %% key="17-moved"
moving = CompactingScheduler()  # exact reservations, and compaction
compacted = serve(moving).metrics
per_token = moving.moved_tokens / compacted.generation_tokens
print(f"{moving.num_compactions} compactions copied {moving.moved_tokens:,} tokens, ", end="")
print(f"{moving.moved_tokens * token_bytes / 2**20:.0f} MiB")
print(f"{compacted.steps} steps in place of {told.metrics.steps}, with {paged.metrics.steps} paged")
reveal("17.moved", per_token)
assert not any(error is not None and error.fragmented for error in moving.refusals)
assert compacted.steps < told.metrics.steps

# %% [markdown] key="17-moved-prose" lang="en"
# While keys and values move, no step can read them: everybody waits. It helps against the holes
# only: slots that wait for a later token stay empty as before, and the lengths had to be known.
# Blocks need neither.

# %% [markdown] key="17-belief-prose" lang="en"
# ## Three misconceptions, refuted by running them

# %% key="17-belief-total"
belief = misconception("17.total")
belief

# %% key="17-refute-total"
belief.refute()

# %% key="17-belief-last"
belief = misconception("17.last-block")
belief

# %% key="17-refute-last"
belief.refute()

# %% key="17-belief-more"
belief = misconception("17.more-memory")
belief

# %% key="17-refute-more"
belief.refute()

# %% [markdown] key="17-worse-prose" lang="en"
# ## What reserving less made worse
#
# A server could *guess*: reserve fewer tokens, and twice as many once a request outgrows them. But
# the larger piece lies elsewhere. Here such a request gives its slots back, queues again, and is
# computed once more. Reserving the longest has one merit: that never happens.

# %% key="17-worse"
least = sum(p + a - 1 for p, a in pairs)  # each token once
small = load("lab-draft")  # only counted here: steps and tokens are the same with any model
tries = {f"guess {guess}": serve(GuessingScheduler(guess), small) for guess in (32, 128)}
tries |= {f"the longest, {longest}": reserved, "blocks as needed": paged}
print(f"{'reserved':<18}{'most':>5}{'steps':>7}{'sent back':>11}{'computed again':>16}")
for name, llm in tries.items():
    done, again = llm.metrics, llm.metrics.computed_tokens - least
    print(f"{name:<18}{done.max_batch_size:>5}{done.steps:>7}{done.preemptions:>11}", end="")
    print(f"{again:>9,} ({again / least:.0%})")
    assert (again > 0) == (done.preemptions > 0) == (llm is not reserved)
short, long = (llm.metrics for llm in list(tries.values())[:2])
assert short.max_batch_size > long.max_batch_size > reserved.metrics.max_batch_size
assert short.computed_tokens > long.computed_tokens

# %% [markdown] key="17-worse-so" lang="en"
# The shorter the guess, the more run together, and the more is thrown away. The last row pays too:
# whoever takes blocks as needed can run out of them, and sends someone back. But it needs no
# guess, and no larger piece.

# %% [markdown] key="17-whatif-prose" lang="en"
# ## What if it were a 13B model on a 40 GB GPU?
#
# Two formulas say how many requests run together, by what each holds:
#
# $$\text{reserved: } \left\lfloor \frac{\text{slots}}{\text{longest}} \right\rfloor \qquad
# \text{in blocks: about } \frac{\text{slots}}{\text{tokens held} + \text{half a block}}$$
#
# First the test, on the steps above in which requests waited for memory.

# %% key="17-validate"
busy = [len(step.scheduled) for step in paged.trace if step.waiting]
measured = sum(busy) / len(busy)
calculated = slots / (held + (size - 1) / 2)
print(f"reserved: {slots // longest} calculated, {reserved.metrics.max_batch_size} measured")
print(f"in blocks: {calculated:.1f} calculated, {measured:.1f} on average in {len(busy)} steps")
assert abs(calculated / measured - 1) < 0.3

# %% [markdown] key="17-whatif-data" lang="en"
# Now chats as in ShareGPT: 161 prompt and 338 output tokens on average (Kwon et al. 2023, figure
# 11), so a running request holds about 161 + 338/2 tokens, or more: long answers stay longer.
# Everything below is *calculated* from dimensions and data sheet.

# %% key="17-whatif"
gpu = Gpu("A100 40 GB", 40, 1555e9, 312e12, "NVIDIA A100 data sheet")
place = Deployment(ModelSize.llama2_13b(), gpu)
token = place.model.kv_bytes(1)
room, chat = int(place.kv_budget // token), 161 + 338 // 2
print(f"weights {place.model.weight_bytes / 2**30:.1f} GiB, a token's KV {token // 1024} KiB")
print(f"{room:,} slots are left, {room * token / 2**30:.1f} GiB")
batches = {f"reserve {n:,}": room // n for n in (4096, 2048, 1024)}
batches["blocks of 16"] = int(room / (chat + 7.5))
for name, batch in batches.items():
    rate = batch / place.seconds(StepLoad.decode(batch, context=chat))
    print(f"{name:<14}{batch:>3} requests, {batch * chat / room:4.0%} of the slots used, ", end="")
    print(f"{rate:6,.0f} tokens/s")
assert list(batches.values()) == sorted(batches.values())

# %% [markdown] key="17-whatif-change" lang="en"
# **Change it.** Set `chat = 900`, as with documents before each question. Which batches stay, and
# how large is the gap between the last two now? Then give the GPU 80 GiB: do the shares of used
# slots change?

# %% [markdown] key="17-paper" lang="en"
# The authors of PagedAttention measured it on systems of 2023: between 20.4% and 38.2% of the KV
# memory held tokens (Kwon et al. 2023, figure 2). The rest was reservation and both kinds of
# fragmentation.

# %% key="17-quiz"
quiz("17.cap")

# %% key="17-footer" tags=["hide"]
footer("17_kv_fragmentation")
