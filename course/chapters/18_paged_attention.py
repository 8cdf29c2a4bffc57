# %% key="18-header" tags=["hide"]
from llmserve_lab.course import header

header("18_paged_attention")

# %% [markdown] key="18-problem" lang="en"
# ## The problem
#
# A reservation in one piece wastes memory inside (reserved, unused) and outside (holes).
# PagedAttention does what an operating system does. It cuts the KV cache into **blocks** (pages) of
# one size. A request numbers its own blocks 0, 1, 2 ...: the *logical* side. A **block table** says
# in which *physical* block each lies. A block is given out only when its first token comes.
#
# What does that change, one effect at a time, and what does it cost?

# %% key="18-imports"
import torch

from llmserve_lab import LLM, KVUse, ReservingScheduler, SamplingParams, Scheduler, load, simulate
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal
from llmserve_lab.course.allocations import allocations
from llmserve_lab.course.counting_pool import CountingPool
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.median_time import median_ms
from llmserve_lab.course.past import with_past
from llmserve_lab.course.read_runs import read_runs
from llmserve_lab.course.scattered_pool import ScatteredPool
from llmserve_lab.kv_cache import slots_of
from llmserve_lab.plots import address_map, block_sizes, kv_block_map, paging_effects, show
from llmserve_lab.widgets import live

# %% key="18-model"
model = load("lab-target", dtype="float32")  # rounding stays far below what we compare
prompts = [held_out_prompts(model.tokenizer, 1, n, seed=n)[0] for n in (9, 21, 14)]
params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
print("prompts of", [len(each["prompt_token_ids"]) for each in prompts], "tokens, 24 more for each")

# %% [markdown] key="18-table-prose" lang="en"
# ## Experiment 1: logical and physical
#
# Three requests grow side by side, in blocks of 4 tokens. Each may come to 512 tokens: reserved,
# that would be 3 times 128 blocks.

# %% key="18-predict-held"
question = "How many blocks do the three hold together, at the end of their 24 tokens?"
predict("18.held", question, low=3, high=384, unit="blocks", log=True, default=96)

# %% key="18-predict-random"
question = "Then every block is drawn at random from the free ones. How many of 72 tokens change?"
changes = ["none", "1 to 10", "more than 10"]
predict("18.random", question, choices=changes, default=changes[1])

# %% key="18-live"
size = 4
llm = LLM(model, max_model_len=512, block_size=size, num_blocks=192 // size, trace=True)
live(llm, prompts, params)

# %% [markdown] key="18-map-prose" lang="en"
# The same run, step by step (arrow keys work). Left, memory; right, the block tables: for each
# logical block the number of its physical one.

# %% key="18-map"
show(kv_block_map(llm.trace, title="Which blocks are given out, and when?"))

# %% key="18-held-reveal"
ended = llm.trace[-1].finished
for view in ended:
    print(f"request {view.request_id}: {view.num_computed_tokens} tokens in blocks", end="")
    print("", *view.block_table)
held = sum(len(view.block_table) for view in ended)
reveal("18.held", held)
assert held == sum(-(-(n + 23) // size) for n in (9, 21, 14))

# %% [markdown] key="18-address-prose" lang="en"
# From a token's position to its slot in memory: divide by the block size, look up, put together.
# Step through the tokens of request 1.

# %% key="18-address"
view, position = ended[1], 30
logical, offset = divmod(position, size)
slot = view.block_table[logical] * size + offset
print(f"token {position}: logical block {logical}, offset {offset}; slot {slot}")
assert [slot] == slots_of(list(view.block_table), position, position + 1, size)
show(address_map(view.block_table, view.num_computed_tokens, size, num_blocks=192 // size))

# %% [markdown] key="18-random-prose" lang="en"
# The engine's pool takes neighbours where it can. Nothing asks for that: `ScatteredPool` draws each
# block by chance.

# %% key="18-random"
scattered = LLM(model, block_pool=ScatteredPool(48, 4), max_model_len=512, trace=True)
found = [output.outputs[0].token_ids for output in scattered.generate(prompts, params)]
wanted = [output.outputs[0].token_ids for output in LLM(model).generate(prompts, params)]
show(kv_block_map(scattered.trace, title="And if every block is drawn at random?"))

# %% key="18-random-reveal"
pairs = [pair for both in zip(found, wanted, strict=True) for pair in zip(*both, strict=True)]
changed = sum(a != b for a, b in pairs)
reveal("18.random", changes[(changed > 0) + (changed > 10)])
pieces = {
    name: sum(read_runs(view.block_table) for view in engine.trace[-1].finished)
    for name, engine in (("neighbours", llm), ("random", scattered))
}
print("pieces of memory that hold them:", pieces)
assert changed == 0 and pieces["random"] > pieces["neighbours"]

# %% key="18-because-virtual"
because(
    "18.virtual",
    "Why may any free block be the next one, wherever it lies?",
    explain=(
        "Who reads goes through the table, and the table restores the order. So a program sees "
        "addresses in one piece while its memory pages lie anywhere: a request is the process, a "
        "block the page, the block table the page table. All blocks have one size, so a hole that "
        "is too small cannot be: **external fragmentation** is gone."
    ),
)

# %% [markdown] key="18-table-change" lang="en"
# **Change it.** Set `size = 16` where `llm` is made. It is the same memory: how many slots do the
# three requests hold now, and where are the additional ones?

# %% [markdown] key="18-read-prose" lang="en"
# ## Experiment 2: attention through the table
#
# We stop three scattered requests after ten steps and compute the attention of one query by hand,
# in layer 0. The memory of a layer is two tensors, cut into blocks. (The last one is nobody's:
# padding points there.)

# %% key="18-stop"
llm = LLM(model, block_pool=ScatteredPool(64, 4), trace=True)
for each in prompts:
    llm.add_request(each, params)
for _ in range(10):
    llm.step()
view = llm.trace[-1].running[1]
table, n = list(view.block_table), view.num_computed_tokens
memory = [part[0].unflatten(0, (-1, 4)) for part in (llm.kv_cache.keys, llm.kv_cache.values)]
print(tuple(memory[0].shape), "(blocks, block size, KV heads, head dimension)")
print(n, "tokens in blocks", *table)

# %% [markdown] key="18-gather-prose" lang="en"
# **One way: gather.** Take the request's blocks in the order of the table, then its first $n$
# slots. After that it is attention as ever.

# %% key="18-gather"
keys, values = (part[table].flatten(0, 1)[:n] for part in memory)
print(tuple(keys.shape), "(tokens, KV heads, head dimension)")


# %% key="18-attend"
def attend(query, keys, values):
    """query: (heads, dim); keys, values: (tokens, KV heads, dim). Returns (heads, dim)."""
    keys, values = (part.repeat_interleave(2, dim=1) for part in (keys, values))  # 2 share one
    scores = torch.einsum("hd,nhd->hn", query, keys) / 8  # the root of 64, the head dimension
    return torch.einsum("hn,nhd->hd", scores.softmax(dim=-1), values)


torch.manual_seed(0)
query = torch.randn(4, 64).to(keys.device)
gathered = attend(query, keys, values)
print(tuple(gathered.shape), "(heads, head dimension)")

# %% [markdown] key="18-dense-prose" lang="en"
# **The dense one.** transformers computes the same tokens and keeps their keys and values in one
# piece; torch's own attention reads them.

# %% key="18-dense"
tokens = [t.token_id for step in llm.trace for t in step.sampled if t.request_id == "1"]
ids = torch.tensor([(prompts[1]["prompt_token_ids"] + tokens)[:n]], device=query.device)
past = with_past(model.model, ids)[1].layers[0]
dense = torch.nn.functional.scaled_dot_product_attention(
    query[None, :, None], past.keys, past.values, enable_gqa=True
)[0, :, 0]
apart = float((gathered - dense).abs().max())
print(f"gathered and dense are at most {apart:.0e} apart")
assert apart < 1e-4

# %% [markdown] key="18-blockwise-prose" lang="en"
# **As a kernel does it**: block by block, without a copy. Softmax needs all scores, but it can be
# built up: keep the largest score so far, the sum of the weights and the mix of the values, and
# scale both down when a larger score comes.


# %% key="18-blockwise"
def attend_by_block(query, memory, table, n):
    top = torch.full_like(query[:, :1], -torch.inf)
    total, mixed = torch.zeros_like(top), torch.zeros_like(query)
    for logical, block in enumerate(table):
        written = slice(0, n - 4 * logical)  # the last block may be partly empty
        keys, values = (part[block, written].repeat_interleave(2, dim=1) for part in memory)
        scores = torch.einsum("hd,nhd->hn", query, keys) / 8
        higher = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        weights, shrink = (scores - higher).exp(), (top - higher).exp()
        total = shrink * total + weights.sum(dim=1, keepdim=True)
        mixed = shrink * mixed + torch.einsum("hn,nhd->hd", weights, values)
        top = higher
    return mixed / total


# %% key="18-blockwise-same"
apart = float((attend_by_block(query, memory, table, n) - dense).abs().max())
print(f"block by block and dense are at most {apart:.0e} apart")
assert apart < 1e-4

# %% [markdown] key="18-garbage-prose" lang="en"
# Both read only what is written. But the last block is not full, and its other slots hold whatever
# their last owner left. Say that is NaN (not a number), and that we read the *whole* block, with a
# score of $-\infty$ where nothing is written: after softmax those weights are exactly 0.

# %% key="18-predict-garbage"
question = "What comes out then?"
results = ["the same numbers", "numbers that differ a little", "NaN"]
predict("18.garbage", question, choices=results, default=results[0])

# %% key="18-garbage"
filler = torch.nan
whole = [part[table].flatten(0, 1).repeat_interleave(2, dim=1) for part in memory]
for part in whole:
    part[n:] = filler  # a copy: the engine's own memory stays as it is
scores = torch.einsum("hd,nhd->hn", query, whole[0]) / 8
scores[:, n:] = -torch.inf
weights = scores.softmax(dim=-1)
masked = torch.einsum("hn,nhd->hd", weights, whole[1])
print("weights of unwritten slots:", weights[0, n:].tolist(), "result:", masked[0, :2].tolist())

# %% key="18-garbage-reveal"
is_nan = bool(masked.isnan().all())
reveal("18.garbage", results[2 if is_nan else int(not torch.allclose(masked, dense))])
assert is_nan == (filler != filler) and float(weights[:, n:].sum()) == 0

# %% key="18-because-garbage"
because(
    "18.garbage",
    "The weight is 0. Why does the garbage come through all the same?",
    explain=(
        "0 x NaN is NaN, and one NaN makes the whole sum NaN. So a mask on the scores is not "
        "enough with pages: a kernel must not read the unwritten end of the last block, or must "
        "replace it by zeros. Real engines had this bug. This engine's tests fill the memory with "
        "NaN first."
    ),
)

# %% [markdown] key="18-read-change" lang="en"
# **Change it.** Set `filler = 1e30`. Is the result right now? And what does that say about a test
# that fills unwritten slots with ordinary numbers?

# %% [markdown] key="18-effects-prose" lang="en"
# ## Experiment 3: four effects, one by one
#
# The same 32 requests, of very different lengths, on the same memory of 128 blocks of 16 slots,
# given out in three ways:
#
# - **longest**: 512 slots in one piece for each, since a request may come to that;
# - **exact**: prompt and output in one piece, as if a server knew the output's length beforehand;
# - **pages**: a block when it is needed.

# %% key="18-predict-batch"
question = "Longest has room for 4 at a time. How many run at a time with pages, on average?"
predict("18.batch", question, low=4, high=32, unit="requests", log=True, default=8)

# %% key="18-predict-exact"
question = "And exact, which knows the future: against pages, how many run at a time there?"
against = ["more", "as many (within 5%)", "fewer"]
predict("18.exact", question, choices=against, default=against[0])


# %% key="18-serve"
def serve(scheduler, num_blocks=128):
    llm = LLM(model, max_model_len=512, num_blocks=num_blocks, scheduler=scheduler, trace=True)
    simulate.run_live(llm, workload)
    return llm


lengths = simulate.LogNormal(80, 0.6, 16, 200), simulate.LogNormal(40, 0.6, 8, 120)
workload = simulate.Workload.draw(32, *lengths, seed=1)
engines = {
    "longest": serve(ReservingScheduler()),
    "exact": serve(ReservingScheduler(to_model_len=False)),
    "pages": serve(Scheduler()),
}

# %% [markdown] key="18-waste-prose" lang="en"
# **Less fragmentation.** Counted in the steps in which somebody had to wait, since only then is
# memory short. *Inside*: held slots without a token. *Outside*: steps in which the first in the
# queue was refused although enough slots were free in all.


# %% key="18-waste"
def pressed(trace):
    return [step for step in trace if step.waiting and not step.preempted]


rows = {name: {"waste": KVUse.of(pressed(llm.trace)).waste} for name, llm in engines.items()}
for name, row in rows.items():
    print(f"{name:<8} {row['waste']:6.1%} of the held slots had no token")
assert rows["longest"]["waste"] > rows["exact"]["waste"] > rows["pages"]["waste"] > 0


# %% key="18-holes"
def refused_by_holes(llm, wanted_tokens):
    """Steps in which the first in the queue would have fitted in total."""
    count = 0
    for step in pressed(llm.trace):
        given_back = sum(len(view.block_table) for view in step.finished)  # after it was refused
        free = step.block_refs.count(0) - given_back
        count += -(-wanted_tokens(step.waiting[0]) // 16) <= free
    return count


asks = {f"load-{i}": ask for i, ask in enumerate(workload.asks, start=1)}
final = {name: ask.prompt_tokens + ask.output_tokens for name, ask in asks.items()}

# %% key="18-holes-count"
holes = {
    "exact": refused_by_holes(engines["exact"], lambda view: final[view.request_id]),
    "pages": refused_by_holes(
        engines["pages"], lambda view: view.num_prompt_tokens + view.num_output_tokens
    ),
}
for name, count in holes.items():
    print(f"{name:<8} refused by holes in {count} of {len(pressed(engines[name].trace))} steps")
assert holes["pages"] == 0 < holes["exact"]

# %% [markdown] key="18-used-prose" lang="en"
# **Higher utilisation**, twice: of the memory (the share of all slots that hold a token), and of
# the processor (operations for each byte that a step moves: a decode step mostly waits for bytes).

# %% key="18-used"
for name, llm in engines.items():
    steps, done = pressed(llm.trace), llm.metrics
    rows[name]["used"] = KVUse.of(steps).used / (len(steps) * llm.pool.num_blocks * 16)
    rows[name]["intensity"] = done.flops / done.num_bytes
    print(f"{name:<8} {rows[name]['used']:6.1%} of the memory holds tokens, ", end="")
    print(f"{rows[name]['intensity']:5.1f} operations per byte")
for effect in ("used", "intensity"):
    assert rows["longest"][effect] < rows["exact"][effect] < rows["pages"][effect]

# %% [markdown] key="18-batch-prose" lang="en"
# **A larger batch**: requests that run in one step.

# %% key="18-batch"
for name, llm in engines.items():
    steps = pressed(llm.trace)
    rows[name]["batch"] = sum(len(step.scheduled) for step in steps) / len(steps)
    print(f"{name:<8} {rows[name]['batch']:5.1f} at a time, at most {llm.metrics.max_batch_size}")
reveal("18.batch", rows["pages"]["batch"])
ratio = rows["exact"]["batch"] / rows["pages"]["batch"]
reveal("18.exact", against[(ratio < 1.05) + (ratio < 0.95)])
assert rows["longest"]["batch"] <= 4 < rows["exact"]["batch"] < rows["pages"]["batch"]

# %% [markdown] key="18-throughput-prose" lang="en"
# **More throughput**: output tokens per step, over the whole run. (Per second too, but a step with
# more requests takes longer, and clocks waver.)

# %% key="18-throughput"
for name, llm in engines.items():
    done = llm.metrics
    rows[name]["throughput"] = done.generation_tokens / done.steps
    print(f"{name:<8} {done.generation_tokens:,} tokens in {done.steps} steps: ", end="")
    print(f"{rows[name]['throughput']:4.1f} a step, ", end="")
    print(f"{done.generation_tokens_per_second:5.0f} a second")
assert rows["longest"]["throughput"] < rows["exact"]["throughput"] < rows["pages"]["throughput"]

# %% key="18-effects-figure"
show(paging_effects(rows))

# %% key="18-because-chain"
because(
    "18.chain",
    "Paging touches memory only. How does that become more tokens per second?",
    explain=(
        "Link by link: less waste means more tokens in the same memory, so more requests at a "
        "time. One read of the weights then serves more requests: more operations per byte, more "
        "tokens out of each step. Exact loses to pages because it holds room for tokens that come "
        "much later; pages lend that room to others in the meantime."
    ),
)

# %% [markdown] key="18-effects-change" lang="en"
# **Change it.** Add `"pages, a third": serve(Scheduler(), num_blocks=43)` to `engines` and run on
# from there. Which of its four bars still beat those of longest, which has all 128 blocks?

# %% key="18-belief-waste"
belief = misconception("18.no-waste")
belief

# %% key="18-refute-waste"
belief.refute()

# %% [markdown] key="18-size-prose" lang="en"
# ## Experiment 4: how large is a block?
#
# From 1 token, as in caches that keep every token apart (LightLLM), over 16 (vLLM's usual size) to
# 128. The same memory, and 25 requests that begin with the same 100 tokens, which prefix caching
# finds again, in whole blocks. All that is counted here is decided by scheduler and pool, so a
# simulator runs them, without the model.

# %% key="18-predict-one"
question = "Blocks of 1 token in place of 16: how many percent more requests run at a time?"
predict("18.one", question, low=0, high=100, unit="percent", default=40)

# %% key="18-predict-found"
question = "With blocks of 128: how many of those 100 common tokens does a request find?"
predict("18.found", question, choices=[0, 64, 100], default=100)


# %% key="18-sizes"
def simulator(size):
    """2048 slots in blocks of this size; which machine it is does not change any count."""
    machine = simulate.Deployment(simulate.ModelSize.llama2_7b(), simulate.GPUS["A100"])
    memory = {"block_size": size, "num_blocks": 2048 // size, "max_model_len": 512}
    return simulate.Simulator(machine, enable_prefix_caching=True, trace=True, **memory)


def with_blocks(size):
    """What the second request finds of the first, and then the trace of all others."""
    engine = simulator(size)
    parts = [simulate.Workload(asks) for asks in (shared[:1], shared[1:2], shared[2:])]
    first, second, others = (engine.run(part) for part in parts)
    trace = others.trace.steps[first.num_steps + second.num_steps :]
    return second.finished[0].num_hit_tokens, trace


# %% key="18-size-runs"
prefix = simulate.SharedPrefix(simulate.Constant(100))
shared = simulate.Workload.draw(25, lengths[0], lengths[1], prefix=prefix, seed=1).asks
sizes = (1, 4, 16, 64, 128)
by_size = {size: with_blocks(size) for size in sizes}

# %% [markdown] key="18-size-test-prose" lang="en"
# First a test: the real engine serves all of these requests at once, in blocks of 16. Every step of
# the simulation must have scheduled the same tokens.

# %% key="18-size-test"
llm = LLM(model, max_model_len=512, num_blocks=128, enable_prefix_caching=True, trace=True)
simulate.run_live(llm, simulate.Workload(shared))
simulated = simulator(16).run(simulate.Workload(shared)).trace
print(len(llm.trace), "steps served,", len(simulated), "simulated")
assert [step.num_tokens for step in llm.trace] == [step.num_tokens for step in simulated]
assert KVUse.of(llm.trace) == KVUse.of(simulated)

# %% key="18-size-rows"
table = []
print("size   waste   at a time   entries a request   prefix tokens found")
for size, (found, trace) in by_size.items():
    steps, ended = pressed(trace), [view for step in trace for view in step.finished]
    row = {"block_size": size, "waste": 100 * KVUse.of(steps).waste, "found": found}
    row["batch"] = sum(len(step.scheduled) for step in steps) / len(steps)
    row["entries"] = sum(len(view.block_table) for view in ended) / len(ended)
    table.append(row)
    print(f"{size:>4}{row['waste']:7.1f}%{row['batch']:12.1f}", end="")
    print(f"{row['entries']:20.1f}{found:>22}")

# %% key="18-size-figure"
show(block_sizes(table))

# %% key="18-size-reveal"
one, _, sixteen, _, largest = table
reveal("18.one", 100 * (one["batch"] / sixteen["batch"] - 1))
reveal("18.found", largest["found"])
assert one["waste"] < 0.5 < sixteen["waste"] < largest["waste"]
assert one["entries"] > 10 * sixteen["entries"]
assert [row["found"] for row in table] == [100, 100, 96, 64, 0]

# %% [markdown] key="18-pieces-prose" lang="en"
# And the reading: a kernel is fastest on long pieces of memory that lie in one go. How short can a
# piece get, and how many are there in fact, where the pool takes neighbours?

# %% key="18-pieces"
config = model.model.config
row_bytes = config.num_key_value_heads * config.head_dim * 4  # a token's keys in one layer
for size, (_, trace) in by_size.items():
    tables = [view.block_table for step in trace for view in step.finished]
    runs = sum(map(read_runs, tables)) / len(tables)
    print(f"blocks of {size:>3}: at least {size * row_bytes:>6,} bytes in one go, ", end="")
    print(f"here {runs:4.1f} pieces")

# %% key="18-because-size"
because(
    "18.size",
    "What does each side of the trade-off follow?",
    explain=(
        "Only a request's **last** block is partly empty: about half a block each, so waste grows "
        "with the size. Everything that is done per block (table entries, look-ups, hashes) falls "
        "with it. And a prefix is shared in whole blocks: of 100 tokens 96 are found with 16, none "
        "with 128. From 16 on down there is little left to win."
    ),
)

# %% [markdown] key="18-size-change" lang="en"
# **Change it.** In `shared`, put `simulate.Constant(200)` in place of `lengths[0]`, the lengths of
# the prompts. What becomes of the waste at 16 and at 128, and which size would you take for long
# contexts?

# %% key="18-belief-one"
belief = misconception("18.size-one")
belief

# %% key="18-refute-one"
belief.refute()

# %% [markdown] key="18-share-prose" lang="en"
# ## Experiment 5: sharing, and copy-on-write
#
# Two tables may point to the same physical block: it is counted by references. Four continuations
# of one prompt of 100 tokens share its blocks. When one of them is about to *write* into a block
# that others read too, it gets a copy first.

# %% key="18-predict-copies"
question = "100 tokens in blocks of 16, four continuations: how many blocks are copied in all?"
predict("18.copies", question, choices=[0, 3, 4, 28], default=4)

# %% key="18-share"
pool = CountingPool(64, 16)
llm = LLM(model, block_pool=pool, trace=True)
length = 100
(prompt,) = held_out_prompts(model.tokenizer, count=1, num_tokens=length)
several = SamplingParams(n=4, temperature=1, seed=5, max_tokens=20, ignore_eos=True)
answers = llm.generate(prompt, several)[0].outputs
for step in llm.trace.steps[:2]:
    owners = sorted((refs for refs in step.block_refs if refs), reverse=True)
    print(f"step {step.step}: owners of the blocks", owners)
print(len({answer.token_ids for answer in answers}), "different answers")

# %% key="18-share-map"
show(kv_block_map(llm.trace, title="Which blocks do four continuations share?"))

# %% key="18-share-reveal"
reveal("18.copies", pool.num_copied)
apart, full = 4 * -(-(length + 19) // 16), length // 16
print(f"at most {llm.metrics.peak_kv_blocks_used} blocks in use; without sharing {apart}")
assert pool.num_copied == (3 if length % 16 else 0)
assert llm.metrics.peak_kv_blocks_used == apart - 3 * full
for index, answer in enumerate(answers):
    alone = LLM(model).generate(prompt, several.continuation(index))[0].outputs[0]
    assert answer.token_ids == alone.token_ids

# %% key="18-because-share"
because(
    "18.last-owner",
    "Why three copies, for four writers?",
    explain=(
        "Six blocks are full and never written again: they stay shared to the end. The seventh "
        "holds the last 4 tokens of the prompt, and all four want to write behind them. The first "
        "three take a copy each and give up their reference. The fourth is then the only owner, "
        "and writes in place."
    ),
)

# %% [markdown] key="18-share-change" lang="en"
# **Change it.** Set `length = 96`. How many blocks are copied then, and why?

# %% key="18-belief-faster"
belief = misconception("18.faster-attention")
belief

# %% key="18-refute-faster"
belief.refute()

# %% [markdown] key="18-worse-prose" lang="en"
# ## What paging made worse
#
# **Indirection.** The same 512 tokens, read in one piece and through a table. In one piece torch
# takes a view; scattered rows have to be gathered, that is copied, or looked up one by one in a
# kernel.

# %% key="18-worse-read"
cache = LLM(model, num_blocks=64).kv_cache
order = torch.randperm(64, generator=torch.Generator().manual_seed(0))[:32].tolist()
scattered_slots = torch.tensor(slots_of(order, 0, 512, 16), device=query.device)
copied = {}
for name, where in (("in one piece", slice(0, 512)), ("through a table", scattered_slots)):
    with allocations() as seen:
        kept = cache.read(0, where)
    copied[name] = seen.kept
    ms = median_ms(lambda where=where: float(attend(query, *cache.read(0, where)).sum()))
    print(f"{name:<16} {seen.kept:>8,} bytes copied, attention {ms:.2f} ms")
assert copied == {"in one piece": 0, "through a table": 2 * 512 * 2 * 64 * 4}

# %% [markdown] key="18-worse-book-prose" lang="en"
# **Bookkeeping, and longer steps.** Of a reservation a kernel needs one number for each request,
# where it begins; of pages the whole table, in every step. And with more requests in a step, each
# of them waits longer for its next token.

# %% key="18-worse-book"
for name, llm in engines.items():
    steps, done = pressed(llm.trace), llm.metrics
    views = [view for step in steps for view in step.running]
    paged = name.startswith("pages")
    numbers = sum(len(view.block_table) for view in views) if paged else len(views)
    print(f"{name:<8} {numbers / len(steps):5.1f} addresses a step, ", end="")
    print(f"{1000 * done.seconds / done.steps:5.1f} ms a step")
    assert not paged or numbers > 5 * len(views)

# %% [markdown] key="18-worse-preempt-prose" lang="en"
# **No promise.** A reservation is a promise: who runs will finish. With pages, requests are let in
# on what they need now, and may run out of blocks later. Then one gives its blocks back, and its
# tokens are computed again.

# %% key="18-worse-preempt"
needed = sum(ask.prompt_tokens + ask.output_tokens - 1 for ask in workload.asks)
for name, llm in engines.items():
    done = llm.metrics
    again = done.computed_tokens - needed
    print(f"{name:<8}{done.preemptions:>3} sent back, {again:>5,} tokens computed again")
    assert (done.preemptions > 0) == (again > 0) == name.startswith("pages")

# %% [markdown] key="18-whatif-prose" lang="en"
# ## What if it were a 7B model on a real GPU?
#
# With $S$ slots, a block of $b$ and requests that come to $n$ tokens, in both schemes
#
# $$\text{requests at a time} = \left\lfloor \frac{S / b}{\lceil \text{held} / b \rceil}
# \right\rfloor$$
#
# where *held* is $n$ with pages and the longest length with reservations. First the test: requests
# of one length, each let in only with all blocks that it will need.

# %% key="18-whatif-test"
for n, size, num_blocks in ((100, 16, 32), (100, 64, 8), (120, 8, 64)):
    llm = LLM(model, block_size=size, num_blocks=num_blocks, scheduler=Scheduler(max_preemptions=0))
    equal = simulate.Workload.draw(10, simulate.Constant(n - 4), simulate.Constant(4))
    simulate.run_live(llm, equal)
    formula = num_blocks // -(-n // size)
    print(f"{n} tokens, {num_blocks} blocks of {size}: ", end="")
    print(f"{llm.metrics.max_batch_size} at a time, {formula} by formula")
    assert llm.metrics.max_batch_size == formula

# %% [markdown] key="18-whatif-gpu-prose" lang="en"
# Now Llama-2-7B, with requests as in the ShareGPT conversations of the vLLM paper (161 tokens in,
# 338 out on average), where up to 4,096 are allowed. Calculated: at a time by the formula, tokens
# per second as a ceiling, from data sheets.

# %% key="18-whatif"
seven, mean_length = simulate.ModelSize.llama2_7b(), 161 + 338
for gpu in ("RTX 4090", "A100", "H100", "H200"):
    machine, gains = simulate.Deployment(seven, simulate.GPUS[gpu]), []
    blocks = machine.num_blocks(16)
    for held in (4096, mean_length):
        batch = blocks // -(-held // 16)
        step = simulate.StepLoad.decode(max(1, batch), context=161 + 338 // 2)
        gains.append((batch, batch / machine.seconds(step)))
    (few, slow), (many, fast) = gains
    print(f"{gpu:<9}reserved {few:>3} at a time, {slow:6,.0f} tokens/s; ", end="")
    print(f"pages {many:>4}, {fast:6,.0f}")
    assert many >= (7 if mean_length < 512 else 1) * few and fast >= slow

# %% [markdown] key="18-whatif-change" lang="en"
# **Change it.** Set `mean_length = 4096`: every request comes to the longest length. What is left
# of the gain? Paging pays where lengths differ and are not known. Here both numbers assume that no
# request is ever sent back.

# %% key="18-quiz"
quiz("18.sizes")

# %% key="18-footer" tags=["hide"]
footer("18_paged_attention")
