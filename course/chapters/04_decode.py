# %% key="04-header" tags=["hide"]
from llmserve_lab.course import header

header("04_decode")

# %% [markdown] key="04-problem" lang="en"
# ## The problem
#
# After the prefill the model writes, one token after another. Each is drawn from
#
# $$p(x_t \mid x_{<t})$$
#
# - $x_t$: the token at place $t$.
# - $x_{<t}$: all tokens before it, those that the model has just written included.
#
# So a token must be known before the next can be computed: *decode* cannot be made fully parallel.
# What does each of these steps cost, and what can still run side by side?

# %% key="04-imports"
from math import exp

import torch

from llmserve_lab import LLM, SamplingParams, load, plots
from llmserve_lab.course import because, footer, misconception, predict, quiz, reveal
from llmserve_lab.course.dimensions import Dimensions
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.machine_use import decode_uses, prefill_uses, product_uses
from llmserve_lab.plots import show
from llmserve_lab.simulate import GPUS, ModelSize, StepLoad, decode_estimate, this_machine

# %% key="04-model"
torch.set_grad_enabled(False)  # nothing is trained here
model = load("lab-target", dtype="float32")  # so that equal means equal, on a GPU too
device = model.model.device
prompt = model.tokenizer("with open(path) as")["input_ids"]
params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=3)
print(len(prompt), "prompt tokens")

# %% [markdown] key="04-chain-prose" lang="en"
# ## Experiment 1: a chain of tokens
#
# A text's probability is a product of such factors, one for each token. The engine reports them as
# logarithms, with the likeliest other tokens.

# %% key="04-chain"
(output,) = LLM(model).generate({"prompt_token_ids": prompt}, params)
tokens = list(output.outputs[0].token_ids)
for token, entry in list(zip(tokens, output.outputs[0].logprobs, strict=True))[:4]:
    ranked = sorted(entry.values(), key=lambda each: -each.logprob)
    print("   ".join(f"{each.decoded_token!r} {exp(each.logprob):.1%}" for each in ranked))
    assert token == max(entry, key=lambda t: entry[t].logprob)  # greedy takes the likeliest

# %% key="04-predict-same"
question = (
    "Replace the 1st new token by the runner-up. How many of the 23 after it stay as they were?"
)
predict("04.same", question, low=0, high=23, step=1, unit="tokens")

# %% key="04-runner-up"
first = sorted(output.outputs[0].logprobs[0].items(), key=lambda item: -item[1].logprob)
runner_up = first[1][0]
(other,) = LLM(model).generate({"prompt_token_ids": [*prompt, runner_up]}, params)
others = [runner_up, *other.outputs[0].token_ids][: len(tokens)]
print(repr(model.tokenizer.decode(tokens)[:60]))
print(repr(model.tokenizer.decode(others)[:60]))

# %% key="04-same-reveal"
same = sum(a == b for a, b in zip(tokens[1:], others[1:], strict=True))
reveal("04.same", same)

# %% [markdown] key="04-influence-prose" lang="en"
# That is what came out. Where does the dependence lie? One pass over prompt and output gives the
# logits at *every* place. Then the same with one token changed, at one place after another.


# %% key="04-influence"
def logits(tokens):
    """(tokens, vocabulary): after each token, what the model says of the next."""
    return model.model(torch.tensor([tokens], device=device), use_cache=False).logits[0]


text = prompt + tokens
texts = [model.tokenizer.decode([token]) for token in text]
before, changes = logits(text), {}
for place in range(0, len(text), 4):
    changed = [*text[:place], runner_up, *text[place + 1 :]]
    changes[place] = (logits(changed) - before).abs().amax(dim=-1).tolist()
print(len(changes), "places changed,", len(text), "predictions looked at each time")

# %% key="04-influence-check"
for place, row in changes.items():
    assert max(row[:place], default=0) < 1e-3  # no prediction before it
    assert text[place] == runner_up or min(row[place:]) > 0  # and each one after it
show(plots.influence(changes, texts))

# %% key="04-chain-because"
because(
    "04.sequential",
    "The whole text could be checked in one pass. Why can it not be *written* in one pass?",
    explain=(
        "Every prediction needs all tokens before it. In a prompt, or in a text that is there "
        "already, they are known, so all places run together. While the model writes, the token at "
        "place t - 1 does not exist until its step is done, and a changed one changes everything "
        "after it. 24 tokens are 24 passes, whatever the machine."
    ),
)

# %% [markdown] key="04-chain-change" lang="en"
# **Change it.** Set `runner_up = first[2][0]` and run from there. Does the text come back to the
# first one anywhere? Step through the figure: which single token moves the most predictions far?

# %% [markdown] key="04-bytes-prose" lang="en"
# ## Experiment 2: what a decode step moves
#
# A step multiplies one token by every weight. So it reads all weights, and the keys and values of
# all tokens so far. *Intensity* is how many operations it does for each byte that it moves.

# %% key="04-predict-intensity"
question = (
    "A decode step of lab-target, alone, in float32: how many operations for each byte moved?"
)
predict("04.intensity", question, low=0.01, high=1000, unit="operations a byte", log=True)

# %% key="04-step"
llm = LLM(model)
llm.add_request({"prompt_token_ids": prompt}, params)
llm.step()  # the prefill
llm.reset_metrics()
llm.step()  # one decode step
step = llm.metrics
print(f"{step.num_bytes:,.0f} bytes, {step.flops:,} operations, {1000 * step.seconds:.1f} ms")

# %% key="04-by-hand"
lab = Dimensions.of("lab-target", model.model)
size = model.model.dtype.itemsize
weights = lab.layer_weights + lab.vocabulary * lab.hidden  # layers, and the output layer
context = len(prompt) + 1
kv = 2 * lab.num_layers * lab.kv_width  # keys and values of one token
moved = size * (weights + (context + 1) * kv)  # read all so far, write one
operations = 2 * weights + 4 * lab.num_layers * lab.hidden * context
print(f"{size * weights / moved:.1%} of the bytes are weights")
assert moved == step.num_bytes and operations == step.flops

# %% key="04-intensity-reveal"
reveal("04.intensity", operations / moved)

# %% key="04-intensity-because"
because(
    "04.intensity",
    "Where does one half come from?",
    explain=(
        "A weight is used for a multiplication and an addition: 2 operations. In float32 it has 4 "
        "bytes. That is 0.5, for a small model and for a large one; with 16-bit weights it is 1. "
        "Only more tokens in the same step raise it: they use the weight again while it is there."
    ),
)

# %% [markdown] key="04-matrix-prose" lang="en"
# ## Experiment 3: memory or arithmetic?
#
# A machine has two limits: bytes/s from memory, and operations/s. The *roofline* shows both. Below
# a certain intensity memory decides, above it arithmetic.
#
# `lab-target` is so small that its weights may fit into the processor's own cache. A random matrix
# of 128 MiB does not: it stands for the weights of a large model. Multiply it by 1 vector, as a
# decode step does, then by more.

# %% key="04-predict-matrix"
question = "16 vectors at once instead of 1: sixteen times the operations. How many times the time?"
predict("04.matrix", question, low=1, high=32, unit="times", log=True)

# %% key="04-matrix"
matrix = torch.randn(8192, 4096, device=device, dtype=model.model.dtype)
products = product_uses(matrix, (1, 4, 16, 64, 256))
for use in products:
    print(use)
assert products[2].flops == 16 * products[0].flops
assert products[2].num_bytes < 1.1 * products[0].num_bytes

# %% key="04-matrix-reveal"
reveal("04.matrix", products[2].seconds / products[0].seconds)

# %% key="04-uses"
machine = this_machine(model.model.dtype)
prefills, decodes = prefill_uses(model, (16, 64, 512)), decode_uses(model, (1, 8, 64))
for use in (*prefills, *decodes):
    print(use)
print(f"this machine: {machine.bandwidth / 1e9:.0f} GB/s, {machine.flops / 1e9:.0f} GFLOP/s,")
print(f"equal at {machine.flops / machine.bandwidth:.1f} operations a byte")
assert prefills[-1].intensity > 50 * decodes[0].intensity

# %% key="04-roofline"
show(plots.roofline(machine.bandwidth, machine.flops, [*products, *prefills, *decodes]))

# %% key="04-roofline-because"
because(
    "04.bound",
    "What holds back the matrix with one vector? Why is lab-target's decode step not at the roof?",
    explain=(
        "One vector uses each weight once: the product lasts as long as the reading. `lab-target` "
        "reads so little that other things show: the fixed cost of a step, dozens of small calls "
        "from Python, and a processor's cache, which may hold its weights. Its *intensities* are "
        "those of every model, and where the reading takes longest, memory decides. (A few vectors "
        "may fall below the roof too: products so narrow keep a processor's units half idle.)"
    ),
)

# %% [markdown] key="04-roofline-change" lang="en"
# **Change it.** Set `(1, 2, 4, 8, 16, 32)` vectors. Where does the product leave the slope of
# memory, and how near is that to the intensity at which both limits are equal?

# %% [markdown] key="04-drafts-prose" lang="en"
# ## Experiment 4: what can still run side by side
#
# First, other requests: a batch uses each weight for all of them. Second, one request's *guesses*.
# If someone proposes the next tokens, the large model can check them all in one pass, as it reads a
# prompt. Here `lab-draft` proposes 4.

# %% key="04-draft"
draft = LLM("lab-draft", dtype="float32")


def propose(text, count):
    settings = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    (output,) = draft.generate({"prompt_token_ids": text}, settings)
    return list(output.outputs[0].token_ids)


ahead = 4  # guesses a time
guess = propose(prompt, ahead)
print("the draft goes on with", [model.tokenizer.decode([token]) for token in guess])

# %% key="04-one-pass"
together = logits(prompt + guess)[-1 - ahead :]  # after the prompt, and after each guess
apart = torch.stack([logits(prompt + guess[:i])[-1] for i in range(ahead + 1)])  # pass by pass
print("largest difference:", f"{float((together - apart).abs().max()):.1e}")
assert torch.allclose(together, apart, atol=1e-3)

# %% [markdown] key="04-verify-prose" lang="en"
# So one pass says what the large model would have written at each place, as long as the guess was
# right up to there. Keep that much, add the model's own token, and guess again.

# %% key="04-predict-passes"
question = "48 tokens with 4 guesses a time: how many passes of the large model, instead of 48?"
predict("04.passes", question, low=10, high=48, step=1, unit="passes")

# %% key="04-verify"
(long_prompt,) = (
    each["prompt_token_ids"] for each in held_out_prompts(model.tokenizer, 1, 64, seed=1)
)
written, kept = [], []
while len(written) < 48:
    guess = propose(long_prompt + written, ahead)
    picks = logits(long_prompt + written + guess)[-1 - ahead :].argmax(dim=-1).tolist()
    right = 0
    while right < ahead and guess[right] == picks[right]:
        right += 1
    written += picks[: right + 1]  # the guesses that were right, and one of its own
    kept.append(right)
print(len(written), "tokens in", len(kept), "passes; guesses kept in each:")
print(*kept)

# %% key="04-verify-equal"
greedy = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)
(output,) = LLM(model).generate({"prompt_token_ids": long_prompt}, greedy)
print(repr(output.outputs[0].text[:60]))
assert written[:48] == list(output.outputs[0].token_ids)  # the same text, token by token

# %% key="04-passes-figure"
show(plots.draft_passes(kept, guessed=ahead))

# %% key="04-passes-reveal"
reveal("04.passes", len(kept))

# %% key="04-drafts-because"
because(
    "04.parallel",
    "The dependence is still there. How can several places run in one pass all the same?",
    explain=(
        "The pass does not need the tokens to be *right*, only to be *there*. It computes what "
        "follows each guess; a place counts only if all guesses before it were right. A wrong "
        "guess costs its work and changes nothing: the text is exactly the one that the large "
        "model writes alone. A pass does more work, and reads the weights once as before."
    ),
)

# %% [markdown] key="04-drafts-change" lang="en"
# **Change it.** Set `ahead = 8` and run from there. Do the passes halve? Look at how many guesses
# each pass throws away.

# %% [markdown] key="04-belief-prose" lang="en"
# ## Two misconceptions, refuted by running them

# %% key="04-belief-arithmetic"
belief = misconception("04.decode-is-arithmetic")
belief

# %% key="04-refute-arithmetic"
belief.refute()

# %% key="04-belief-flops"
belief = misconception("04.flops-decide")
belief

# %% key="04-refute-flops"
belief.refute()

# %% [markdown] key="04-worse-prose" lang="en"
# ## What guessing ahead made worse
#
# Fewer passes, but more work in all: places computed by the large model and thrown away, and the
# draft model's own steps, which are a chain too.

# %% key="04-worse"
places = (1 + ahead) * len(kept)
thrown = ahead * len(kept) - sum(kept)
print(f"places computed by the large model: {places} for {len(written)} tokens")
print(f"guesses thrown away: {thrown}; steps of the draft model: {ahead * len(kept)}")
work = places / len(written)
print(f"{work:.1f} times the places, in {len(kept) / len(written):.2f} times the passes")
assert places == len(written) + thrown and work > 1

# %% [markdown] key="04-whatif-prose" lang="en"
# ## What if it were a 7B model on a real GPU?
#
# The least time of a decode step is the larger of bytes / bandwidth and operations / FLOP/s. Bytes
# and operations matched the engine's count. Test the first quotient on the large matrix, then use
# it on data sheets.

# %% key="04-whatif-test"
one = products[0]
floor = one.num_bytes / machine.bandwidth
print(f"one vector: {1000 * floor:.1f} ms by bandwidth, {1000 * one.seconds:.1f} ms measured")

# %% key="04-whatif"
seven = ModelSize.llama2_7b()
names = ("T4", "L4", "A100", "H100", "H200")
print("calculated, the least for a token:")
for name in names:
    gpu, step = GPUS[name], decode_estimate(seven, GPUS[name], batch_size=1, context=1024)
    print(f"{name:<4} {gpu.bandwidth / 1e9:5.0f} GB/s {gpu.flops / 1e12:4.0f} TFLOP/s: ", end="")
    print(f"{1000 * step.seconds:5.1f} ms, {step.bound} decides")
    assert step.bound == "bandwidth"

# %% [markdown] key="04-whatif-batch-prose" lang="en"
# And with a batch? Each request more uses the same weights, and brings a cache of its own. Whether
# so many requests *fit* is left out here.

# %% key="04-whatif-figure"
context = 64  # tokens of each request


def milliseconds(name, batch_size):
    return 1000 * decode_estimate(seven, GPUS[name], batch_size, context).seconds


def intensity(batch_size):
    work = seven.work.of_load(StepLoad.decode(batch_size, context))
    return work.flops / work.num_bytes


show(plots.gpu_roofs({name: GPUS[name] for name in names}, intensity, milliseconds))

# %% key="04-whatif-reading"
slow, fast = GPUS["T4"], GPUS["L4"]
print(f"L4 against T4, calculated: {fast.flops / slow.flops:.1f} times the FLOP/s,")
print(f"{milliseconds('L4', 1) / milliseconds('T4', 1):.2f} times the time per token")
for context in (1024, 64):
    print(f"{context:>4} tokens each: {intensity(512):5.1f} operations a byte at batch 512")
    bounds = {decode_estimate(seven, GPUS[name], 512, context).bound for name in names}
    assert bounds == ({"bandwidth"} if context == 1024 else {"bandwidth", "compute"})

# %% [markdown] key="04-whatif-change" lang="en"
# With long contexts the caches of a large batch are most of what a step reads, and each is used for
# one request only. Then intensity stops growing, and memory decides at every batch size.
#
# **Change it.** Set `context = 1024` above the figure and step through the batches again. Then take
# `ModelSize.llama3_8b()`, whose cache is a quarter as large.

# %% key="04-quiz"
quiz("04.decode")

# %% key="04-footer" tags=["hide"]
footer("04_decode")
