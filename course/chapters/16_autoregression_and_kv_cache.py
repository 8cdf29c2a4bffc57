# %% key="16-header" tags=["hide"]
from llmserve_lab.course import header

header("16_autoregression_and_kv_cache")

# %% [markdown] key="16-problem" lang="en"
# ## The problem
#
# A language model writes **autoregressively**:
#
# previous token out → next token in → repeat
#
# For the attention over the tokens before, their keys and values are kept: the **KV cache**. It
# removes duplicate attention work and makes inference faster. How much of which work, for an answer
# of $n$ tokens? And a server has many requests: whose duplicates may it remove?

# %% key="16-imports"
from dataclasses import replace
from statistics import median
from time import perf_counter

import torch

from llmserve_lab import LLM, SamplingParams, Scheduler, load, plots, simulate
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal
from llmserve_lab.course.cached_rows import apart, cached_rows
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.forgetful import ForgetfulScheduler
from llmserve_lab.course.layer_pass import layer_pass
from llmserve_lab.course.length_sweep import exponent, measure_lengths
from llmserve_lab.course.lookup import look_up
from llmserve_lab.plots import show

# %% key="16-model"
torch.set_grad_enabled(False)  # nothing is trained here
model = load("lab-target", dtype="float32")  # rounding stays far below what we compare


def text(num_tokens, seed=0):
    """Token ids cut from library files that the model has not seen."""
    return held_out_prompts(model.tokenizer, 1, num_tokens, seed)[0]["prompt_token_ids"]


prompt = text(64)
greedy = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)
LLM(model).generate({"prompt_token_ids": prompt}, greedy)  # warm up
print(len(prompt), "prompt tokens,", greedy.max_tokens, "output tokens")

# %% [markdown] key="16-loop-prose" lang="en"
# ## Experiment 1: token out, token in
#
# One request, step by step: what goes in, and what comes out.

# %% key="16-loop"
llm = LLM(model, trace=True)
whole = llm.generate({"prompt_token_ids": prompt}, greedy)[0].outputs[0].token_ids
steps = list(llm.trace)
print(f"step 0: {steps[0].num_tokens} prompt tokens in, {steps[0].sampled[0].text!r} out")
for step in steps[1:5]:
    fed = steps[step.step - 1].sampled[0].text
    print(f"step {step.step}: {step.num_tokens} token in, {fed!r}; {step.sampled[0].text!r} out")
for index, step in enumerate(steps[1:]):
    assert (step.num_tokens, step.scheduled[0].start) == (1, 64 + index)

# %% [markdown] key="16-calls-prose" lang="en"
# Nothing else goes from step to step: the state of the loop is its text. So a client may cut it:
# take 12 tokens, send the whole text so far as a *new* request, take the next 12. A chat does that
# with every turn. But the engine's cache lives as long as its request.

# %% key="16-predict-calls"
question = "4 calls of 12: how many times as many tokens through the model as in one call of 48?"
predict("16.calls", question, low=1, high=48, unit="times", log=True, default=1.1)


# %% key="16-calls"
def in_calls(count):
    """The same 48 tokens in `count` requests: the engine, and the tokens that came."""
    engine, known = LLM(model, trace=True), list(prompt)
    part = replace(greedy, max_tokens=48 // count)
    for _ in range(count):
        known += engine.generate({"prompt_token_ids": known}, part)[0].outputs[0].token_ids
    return engine, tuple(known[64:])


runs = {count: in_calls(count) for count in (1, 4, 12, 48)}
for count, (engine, tokens) in runs.items():
    print(f"calls: {count:>2}; tokens through the model: {engine.metrics.computed_tokens:>5,}")
    assert tokens == whole

# %% key="16-calls-map"
traces = {"one call": runs[1][0].trace, "four calls": runs[4][0].trace}
show(plots.reuse_map(traces, title="What is computed again at each new call?"))

# %% key="16-reveal-calls"
computed = {count: engine.metrics.computed_tokens for count, (engine, _) in runs.items()}
reveal("16.calls", computed[4] / computed[1])
assert computed[1] == 64 + 47
assert computed[48] == sum(range(64, 112))  # as without any cache

# %% key="16-because-calls"
because(
    "16.state",
    "The four calls lost the cache three times. Why did they write the same tokens?",
    explain=(
        "The cache follows from the text: whoever has the tokens can compute it again. It is saved "
        "work, not state. That is what lets a server throw it away when memory is short, move a "
        "request elsewhere, or take the work from **another** request with the same text."
    ),
)

# %% [markdown] key="16-growth-prose" lang="en"
# ## Experiment 2: duplicate work, as a function of length
#
# Now a prompt of one token and answers of $n$, with the cache and with a scheduler that forgets it.
# Two kinds of work: products with the weights, for each *token* computed; and attention, for each
# *pair* of a token and one before it.
#
# Both counts are the same on every machine. The seconds are not: where other programs run too, a
# short answer may even look slower with the cache.

# %% key="16-predict-power"
question = "Without the cache, an answer twice as long: how many times the attention operations?"
factors = ["2 times", "4 times", "8 times"]
predict("16.power", question, choices=factors, default=factors[1])

# %% key="16-predict-share"
question = "Of the operations that the cache spares for 128 tokens: which share is attention's?"
predict("16.share", question, low=0, high=100, unit="%", default=70)

# %% key="16-growth"
lengths = [16, 32, 64, 128]
cached = measure_lengths(model, lengths, Scheduler)
forgetful = measure_lengths(model, lengths, ForgetfulScheduler)
print("  n   computed with/without   attention pairs   seconds     faster")
for a, b in zip(cached, forgetful, strict=True):
    print(f"{a.length:>3}{a.computed:>9}{b.computed:>10,}{a.pairs:>11,}{b.pairs:>11,}", end="")
    print(f"{a.seconds:>8.2f}{b.seconds:>6.2f}{b.seconds / a.seconds:>7.1f}x")
    n = a.length
    assert (a.computed, b.computed) == (n, n * (n + 1) // 2)
    assert (a.pairs, b.pairs) == (n * (n + 1) // 2, n * (n + 1) * (n + 2) // 6)

# %% key="16-growth-figure"
show(plots.length_growth(cached, forgetful))

# %% key="16-reveal-power"
powers = {
    f"{kind} {name}": exponent(lengths, [getattr(point, kind) for point in points])
    for name, points in (("with", cached), ("without", forgetful))
    for kind in ("linear", "attention", "seconds")
}
for name, power in powers.items():
    print(f"{name:<18} n^{power:.2f}")
doubled = forgetful[-1].attention / forgetful[-2].attention
reveal("16.power", factors[(doubled > 3) + (doubled > 6)])
assert [round(powers[f"linear {name}"]) for name in ("with", "without")] == [1, 2]
assert [round(powers[f"attention {name}"]) for name in ("with", "without")] == [2, 3]

# %% key="16-reveal-share"
saved = forgetful[-1].flops - cached[-1].flops
saved_attention = forgetful[-1].attention - cached[-1].attention
print(f"spared {saved / 1e6:,.0f} of {forgetful[-1].flops / 1e6:,.0f} million operations, ", end="")
print(f"{saved_attention / 1e6:,.0f} of attention")
reveal("16.share", 100 * saved_attention / saved)
assert saved_attention < 0.1 * saved

# %% key="16-because-growth"
because(
    "16.powers",
    "The cache takes one power of n from each kind of work. Which one, and why not more?",
    explain=(
        "Without it, step t computes t tokens again. With it, step t computes one: the sum over "
        "all steps loses a factor of about n, for products with weights (2 becomes 1) and for "
        "attention (3 becomes 2). The new token still has to meet all before it, so attention "
        "keeps its square. Times need not follow the counts: short steps are mostly fixed cost, "
        "large ones use the processor better, and a busy machine adds delays of its own."
    ),
)

# %% [markdown] key="16-growth-change" lang="en"
# **Change it.** Set `lengths = [4, 8, 16, 32]`. Which powers of the *counts* hardly move, and
# which way should that of the time without the cache go? (Short steps are nearly all fixed cost.)

# %% key="16-belief-attention"
belief = misconception("16.mostly-attention")
belief

# %% key="16-refute-attention"
belief.refute()

# %% [markdown] key="16-kept-prose" lang="en"
# ## Experiment 3: what is kept, and for whom is it right?
#
# A layer makes three vectors of each token: query, key, value. Two are kept. First: is the third
# ever needed again? We compute the last token's attention from *its* query alone, and hold it
# against what the model's own layer gave.

# %% key="16-query"
layer = layer_pass(model, prompt, layer=3)
own = layer.attention
q, k, v = (
    project(layer.hidden).unflatten(-1, (-1, 64)).transpose(0, 1)  # (heads, tokens, 64)
    for project in (own.q_proj, own.k_proj, own.v_proj)
)
turned = layer.rotated(k)
query = layer.rotated(q)[:, -1:]  # one query, of the last token
keys, values = (x.repeat_interleave(2, dim=0) for x in (turned, v))  # two heads share one
mixed = (query @ keys.transpose(1, 2) / 8).softmax(-1) @ values  # 8 is the root of 64
output = own.o_proj(mixed.transpose(0, 1).flatten(1))
print(f"1 query, {keys.shape[1]} keys and values: apart {apart(output[0], layer.output[-1]):.1e}")
assert apart(output[0], layer.output[-1]) < 1e-5

# %% [markdown] key="16-rotation-prose" lang="en"
# Now the keys. They are *turned* by their position (RoPE) before they meet a query. What does the
# engine keep: the plain ones or the turned?

# %% key="16-rotation"
kept = cached_rows(model, prompt)  # of the engine, one pair for each layer
for name, mine in (("plain", k), ("turned", turned)):
    away = apart(mine.transpose(0, 1), kept[3].keys)
    print(f"kept keys of layer 3 are {away:.1e} apart from the {name} ones")
    assert (away < 1e-5) == (name == "turned")
print(len(kept), "layers, each", tuple(kept[3].keys.shape), "(tokens, KV heads, 64)")

# %% key="16-because-query"
because(
    "16.query",
    "Keys and values are kept, turned keys at that, and queries are not. Why?",
    explain=(
        "A token's query asks once, in the step in which the token itself is computed. Its key and "
        "value answer every later query: that is what is worth keeping. And turning a key depends "
        "on its own position alone, so it is done once, before it is kept; otherwise each step "
        "would turn all of them again."
    ),
)

# %% [markdown] key="16-same-prose" lang="en"
# Two requests contain the same 64 tokens. In one pair they stand at the same place, after other
# beginnings of 32 tokens. In the other pair at another place: after 32 tokens and after 64.

# %% key="16-predict-same"
question = "At another place: which of the kept numbers of those 64 tokens are equal?"
options = [
    "keys and values of every layer",
    "keys and values of the first layer",
    "the first layer's values only",
    "none",
]
predict("16.same", question, choices=options, default=options[0])

# %% key="16-same"
begins = {"first": text(32, seed=1), "other": text(32, seed=2), "longer": text(64, seed=2)}
rows = {name: cached_rows(model, begin + prompt) for name, begin in begins.items()}


def distances(other):
    """Of keys and of values of the 64 tokens, for each layer."""
    pairs = zip(rows["first"], rows[other], strict=True)
    return [mine.apart(theirs, newest=64) for mine, theirs in pairs]


cases = {"same place, other beginning": distances("other"), "other place": distances("longer")}
for name, found in cases.items():
    print(f"{name}, apart in layers 0 to {len(found) - 1}:")
    for what, row in zip(("keys", "values"), zip(*found, strict=True), strict=True):
        print(f"{what:>8}", *(f"{100 * part:5.0f}%" for part in row))

# %% key="16-same-figure"
show(plots.layer_distance(cases))

# %% key="16-reveal-same"
equal = [[part < 1e-5 for part in layer] for layer in cases["other place"]]
place = 3 if not any(map(any, equal)) else 2 if equal[0] == [False, True] else 0
reveal("16.same", options[place])
assert equal == [[False, True]] + 5 * [[False, False]]
assert [max(layer) < 1e-5 for layer in cases["same place, other beginning"]] == [True] + 5 * [False]

# %% key="16-because-same"
because(
    "16.context",
    "In the first layer some of it is equal, later nothing. What came in between?",
    explain=(
        "The first layer's keys and values are made of the token alone; only the key is turned by "
        "its place. Then attention mixes in what came before, and from the second layer on every "
        "hidden state carries the beginning. So kept numbers are right after **one** beginning "
        "only: a *prefix* can be shared, not any piece of text."
    ),
)

# %% key="16-belief-same"
belief = misconception("16.same-text")
belief

# %% key="16-refute-same"
belief.refute()

# %% [markdown] key="16-reuse-prose" lang="en"
# ## Experiment 4: other requests' work
#
# Eight questions to one assistant: each prompt is the same system text of 200 tokens, then 24 own
# ones. With `enable_prefix_caching=True` a block that is full keeps its content after its request
# has ended, findable by a hash. Blocks hold 16 tokens.

# %% key="16-predict-hits"
question = "Of the second request's 224 prompt tokens: how many are found?"
predict("16.hits", question, low=0, high=224, unit="tokens", step=1, default=200)

# %% key="16-reuse"
system = text(200, seed=3)
questions = [system + text(24, seed=10 + i) for i in range(8)]
cold, warm = LLM(model), LLM(model, enable_prefix_caching=True)
print("request   found   computed   ms to first token   ms without cache")
for index, question in enumerate(questions):
    a, b = look_up(cold, question), look_up(warm, question)
    print(f"{index:>7}{b.hits:>8}{b.computed:>11}", end="")
    print(f"{1000 * b.ttft:>20.1f}{1000 * a.ttft:>19.1f}")
    assert b.hits == (192 if index else 0) and a.hits == 0
print(f"hit rate {warm.pool.hit_rate:.1%} of all tokens looked up")

# %% key="16-reveal-hits"
reveal("16.hits", look_up(warm, questions[1][:200] + text(24, seed=20)).hits)
assert 192 == 200 // 16 * 16  # whole blocks only

# %% [markdown] key="16-waits-prose" lang="en"
# What that saves depends on the length of what is shared. Each length: its beginning is read once,
# then three requests with 16 tokens of their own. On a busy machine single points stray: compare
# the two lines as a whole.

# %% key="16-predict-ttft"
question = "With 512 shared tokens: how many times shorter is the wait for the first token?"
predict("16.ttft", question, low=1, high=50, unit="times", log=True, default=32)

# %% key="16-waits"
tails = [text(16, seed=30 + i) for i in range(4)]


def wait(llm, length):
    """Median time to the first token, after the first request has read the beginning."""
    beginning = text(length, seed=4)
    served = [look_up(llm, beginning + tail) for tail in tails]
    assert all(each.hits in (0, length) for each in served)
    return median(each.ttft for each in served[1:])


shared = (32, 64, 128, 256, 512)
computed = {length: wait(LLM(model), length) for length in shared}
found = {length: wait(LLM(model, enable_prefix_caching=True), length) for length in shared}

# %% key="16-waits-figure"
show(plots.reuse_waits(computed, found))

# %% key="16-reveal-ttft"
for length in shared:
    print(f"{length:>3} shared: {1000 * computed[length]:6.1f} ms computed, ", end="")
    print(f"{1000 * found[length]:5.1f} ms found, {computed[length] / found[length]:4.1f} times")
reveal("16.ttft", computed[512] / found[512])

# %% key="16-because-waits"
because(
    "16.waits",
    "528 tokens against 16 are 33 times the work. Why is the wait not 33 times shorter?",
    explain=(
        "What is found is not computed, but the step itself stays: its fixed cost, the lookup, and "
        "16 tokens whose attention reads all 512 from the cache. So the more is shared, the more "
        "work is spared, but the wait stays above that of a short prompt; delays of a busy machine "
        "can hide this at single lengths. Time per output token does not change at "
        "all: decoding reads the whole context, found or computed."
    ),
)

# %% [markdown] key="16-waits-change" lang="en"
# **Change it.** Make the own part longer: `text(128, seed=30 + i)`. At 512 shared tokens, what is
# left of the factor?

# %% [markdown] key="16-break-prose" lang="en"
# ## Experiment 5: what breaks a match
#
# A prompt of 192 tokens is in the cache, 12 blocks. Then the same prompt comes with **one** token
# changed.

# %% key="16-predict-early"
question = "Token 40 of 192 is another one. How many of the 192 are found?"
predict("16.early", question, low=0, high=192, unit="tokens", step=1, default=176)

# %% key="16-break"
llm = LLM(model, enable_prefix_caching=True)
base = text(192, seed=5)
first = look_up(llm, base, label="the first time")


def changed(place):
    other = list(base)
    other[place] = (other[place] + 1) % 4096
    return look_up(llm, other, label=f"token {place} changed")


variants = [changed(place) for place in (0, 15, 16, 40, 100, 160, 191)]
for each in variants:
    print(f"{each.label:>17}: {each.hits:>3} found")
    assert each.hits == int(each.label.split()[1]) // 16 * 16

# %% key="16-chain-figure"
show(plots.prefix_chain(first, variants))

# %% key="16-reveal-early"
reveal("16.early", variants[3].hits)
for each in variants:
    same = [a == b for a, b in zip(first.digests, each.digests, strict=True)]
    assert same == [True] * (each.hits // 16) + [False] * (12 - each.hits // 16)

# %% key="16-because-chain"
because(
    "16.chained",
    "One token changed, and the hashes of all blocks from there on. Why must they?",
    explain=(
        "Each block's hash is made of the hash before it and of its own tokens. So equal hashes "
        "mean equal beginnings, which is exactly when keys and values are the same (experiment 3). "
        "For a service it means: put first what all prompts share, last what varies. A clock in "
        "the first line of a system prompt makes every request cold."
    ),
)

# %% [markdown] key="16-rules-prose" lang="en"
# Two more rules. Blocks are found **whole**. And the last token is always computed, even where
# everything is known: its logits choose the first output token.

# %% key="16-predict-again"
question = "The same prompt of exactly 64 tokens again: how many of them are computed?"
predict("16.again", question, low=0, high=64, unit="tokens", step=1, default=0)

# %% key="16-rules"
repeated = {}
for length in (63, 64, 65, 80):
    engine = LLM(model, enable_prefix_caching=True)
    once, again = (look_up(engine, base[:length]) for _ in range(2))
    print(f"{length} tokens again: {again.hits} found, {again.computed} computed")
    assert again.hits == (length - 1) // 16 * 16
    repeated[length] = again.computed
reveal("16.again", repeated[64])

# %% [markdown] key="16-salt-prose" lang="en"
# And one that has nothing to do with tokens. A **salt** goes into the first hash; only requests
# with the same salt find each other's blocks.

# %% key="16-salt"
engine = LLM(model, enable_prefix_caching=True)
for who in ("tenant a", "tenant a", "tenant b", "tenant b"):
    print(f"{who}: {look_up(engine, base, salt=who).hits} found")
a, b = (look_up(engine, base, salt=who) for who in ("tenant a", "tenant b"))
assert not set(a.digests) & set(b.digests) and a.hits == b.hits == 176

# %% key="16-belief-whole"
belief = misconception("16.whole-prompt")
belief

# %% key="16-refute-whole"
belief.refute()

# %% key="16-belief-changes"
belief = misconception("16.reuse-changes")
belief

# %% key="16-refute-changes"
belief.refute()

# %% [markdown] key="16-worse-prose" lang="en"
# ## What this made worse
#
# **Memory.** Content that nobody uses stays in its blocks. It is given up for any request that
# needs room, the longest unused first. So it takes nothing away, but it helps only while it stays:
# eight assistants with texts of 96 tokens are asked in turn, three rounds, on pools of several
# sizes.

# %% key="16-worse-memory"
texts = [text(96, seed=40 + i) for i in range(8)]
total = {}
for num_blocks in (64, 52, 48):
    engine = LLM(model, num_blocks=num_blocks, enable_prefix_caching=True)
    served = [look_up(engine, each + tails[turn]) for turn in range(3) for each in texts]
    total[num_blocks] = sum(each.hits for each in served)
    kept_bytes = len(engine.pool.cached()) * engine.capacity.block_bytes
    print(f"{num_blocks} blocks: {total[num_blocks]:>5,} of {24 * 112:,} tokens found, ", end="")
    print(f"{kept_bytes / 2**20:.1f} MiB held by nobody")
    assert engine.pool.num_used == 0
assert list(total.values()) == [1536, 768, 0]

# %% [markdown] key="16-worse-cliff" lang="en"
# Below what all eight need there is no slow decline: asked in turn, each text is overwritten just
# before it is needed again. *Least recently used* is the wrong choice for exactly that order.
#
# **Time.** Every full block is hashed, found or not. What does that add to computing it?

# %% key="16-worse-hash"
pool, long = warm.pool, text(512, seed=6)
began = perf_counter()
parent = None
for start in range(0, 512, 16):
    parent = pool.extend(parent, long[start : start + 16])
hashing = (perf_counter() - began) / 512
computing = look_up(LLM(model), long).ttft / 512
print(f"hashing {1e6 * hashing:.2f} us a token, computing {1e6 * computing:.0f} us: ", end="")
print(f"{100 * hashing / computing:.1f}% on top")

# %% [markdown] key="16-worse-side" lang="en"
# **Privacy.** A hit is faster, and anybody can time their own request. Somebody has sent one of
# four secret texts of 256 tokens. You send each as a guess, and look at the clock only: the least
# of three tries, each on a fresh server. Then the same where each user has a salt.

# %% key="16-worse-probe"
secrets = [text(256, seed=60 + i) for i in range(4)]


def probe(salts):
    engine = LLM(model, enable_prefix_caching=True)
    look_up(engine, secrets[2] + tails[0], salt=salts[0])
    return [look_up(engine, guess + tails[1], salt=salts[1]) for guess in secrets]


for name, salts in (("no salt", ("", "")), ("a salt each", ("victim", "you"))):
    tried = [probe(salts) for _ in range(3)]
    least = [min(each.ttft for each in tries) for tries in zip(*tried, strict=True)]
    print(f"{name:<12} ms:", *(f"{1000 * ttft:.0f}" for ttft in least), end="; ")
    print("the quickest is", least.index(min(least)))
    assert {tuple(t.hits for t in r) for r in tried} == {(0, 0, 256 * (name == "no salt"), 0)}

# %% [markdown] key="16-whatif-prose" lang="en"
# ## What if it were a 7B model on an A100?
#
# Two questions that this machine cannot run. First: from which length on *is* the spared work
# mostly attention? The counts follow from $n$: tokens $n(n+1)/2 - n$, pairs
# $n(n+1)(n+2)/6 - n(n+1)/2$. First tested on what was counted above, then calculated.


# %% key="16-whatif-share"
def spared(work, n):
    """Operations that the cache spares for an answer of n tokens: linear layers, attention."""
    tokens, pairs = n * (n + 1) // 2 - n, n * (n + 1) * (n + 2) // 6 - n * (n + 1) // 2
    return work.linear_flops(tokens, samples=0), work.attention_flops(pairs)


small = simulate.ModelSize.of("lab-target", model.model)
seven = simulate.ModelSize.llama2_7b()
assert sum(spared(small.work, lengths[-1])) == saved
for n in (1024, 4096, 32768, 131072):
    linear, attention = spared(seven.work, n)
    print(f"{seven.name}, {n:>7,} tokens: attention's share {attention / (linear + attention):.0%}")
assert spared(seven.work, 4096)[1] < spared(seven.work, 4096)[0]

# %% [markdown] key="16-whatif-load" lang="en"
# Second: what does a hit save there? The simulator runs the engine's scheduler and block pool with
# times from the data sheet. The test: the same requests must find the same tokens, simulated and
# live.

# %% key="16-whatif-test"
draw = simulate.Workload.closed_loop
shared_text = simulate.SharedPrefix(simulate.Constant(100), count=3)
asks = draw(12, simulate.Constant(20), simulate.Constant(4), users=1, prefix=shared_text)
live = simulate.run_live(LLM(model, enable_prefix_caching=True), asks)
a100 = simulate.GPUS["A100"]
gpu = simulate.Deployment(seven, a100, bandwidth_share=0.7, flops_share=0.5)  # assumed shares
twin = simulate.Simulator(gpu, enable_prefix_caching=True).run(asks)
print(f"hit rate: {live.hit_rate:.1%} live, {twin.hit_rate:.1%} simulated")
assert live.hit_rate == twin.hit_rate > 0


# %% key="16-whatif-run"
def serve(count, caching=True):
    """200 requests, 6 a second, that begin with one of `count` texts of 2,000 tokens."""
    prefix = simulate.SharedPrefix(simulate.Constant(2000), count=count)
    each, arrivals = simulate.Constant(64), simulate.Poisson(6)
    asks = simulate.Workload.draw(200, each, each, arrivals, prefix, seed=1)
    run = simulate.Simulator(gpu, enable_prefix_caching=caching).run(asks)
    p50, p95 = (1000 * run.percentile("ttft", p) for p in (50, 95))
    print(f"{run.hit_rate:4.0%} found, TTFT p50 {p50:5,.0f} ms, p95 {p95:6,.0f} ms", end="")
    print(" (simulated)")


# %% key="16-whatif-rows"
print(f"a text of 2,000 tokens is {seven.kv_bytes(2000) / 2**30:.2f} GiB of keys and values")
print(end="no cache:  ")
serve(1, caching=False)
for count in (1, 8, 64, 512):
    print(end=f"{count:>3} texts: ")
    serve(count)

# %% [markdown] key="16-whatif-change" lang="en"
# **Change it.** Make `seven = simulate.ModelSize.llama3_8b()`: a quarter of the KV for each token.
# In which row does the share that is found grow most, and why there? (What fits stays.)

# %% key="16-quiz"
quiz("16.prompt-order")

# %% key="16-footer" tags=["hide"]
footer("16_autoregression_and_kv_cache")
