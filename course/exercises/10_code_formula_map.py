# %% [markdown] key="10-title" lang="en"
# # Exercise 10: rebuild generate with past_key_values
#
# You write what `model.generate()` does: the loop over `past_key_values`, the stop at the end of a
# text, and a batch of prompts of different lengths. The graders compare with transformers' own
# `generate`, on tiny models with random weights.
#
# The first part is worked for you, the next two lack their last lines, the last two are yours.
# About 30 minutes.

# %% key="10-imports"
import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.past_model import PastModel

# %% [markdown] key="10-data" lang="en"
# ## The model
#
# `PastModel` calls a transformers model. It takes `input_ids`, (rows, tokens), and the
# `past_key_values` of the call before, and it counts what it is given. Its output has `logits`,
# (rows, tokens, vocabulary), and the new `past_key_values`.

# %% key="10-example"
loaded = load("lab-target", dtype="float32", device="cpu")
model = PastModel(loaded.model)
prompt = loaded.tokenizer("def add(a, b):")["input_ids"]
output = model(torch.tensor([prompt]))
print("logits", tuple(output.logits.shape), "cache", output.past_key_values.get_seq_length())
output = model(torch.tensor([[5]]), output.past_key_values)
print("logits", tuple(output.logits.shape), "cache", output.past_key_values.get_seq_length())

# %% [markdown] key="10-bytes-prose" lang="en"
# ## 10.1 The bytes of a cache object (worked)
#
# A cache has `layers`, each with `keys` and `values`. Layers may differ: with a sliding window,
# some hold fewer tokens. So we add up what is there.


# %% key="10-bytes"
def kv_bytes(cache):
    """Bytes of all keys and values in a cache of transformers."""
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


# %% key="10-bytes-check"
check.ex10_kv_bytes(kv_bytes)

# %% [markdown] key="10-generate-prose" lang="en"
# ## 10.2 The loop
#
# Return the next `max_tokens` token ids, chosen greedily. The first call is the prefill. Each later
# one gets a single token. The models here allow no more token ids than a cache needs: with `n` in
# the prompt, `n + max_tokens - 1`.


# %% key="10-generate" exercise="10.2" tags=["solution"]
def generate(model, prompt, max_tokens):
    """prompt: a list of token ids. Returns a list of max_tokens token ids."""
    output = model(torch.tensor([prompt]))
    tokens = [int(output.logits[0, -1].argmax())]
    while len(tokens) < max_tokens:
        # BEGIN SOLUTION: run the newest token after the cache, and append the token that follows
        output = model(torch.tensor([tokens[-1:]]), output.past_key_values)
        tokens.append(int(output.logits[0, -1].argmax()))
        # END SOLUTION
    return tokens


# %% key="10-generate-check" exercise="10.2" tags=["check"]
check.ex10_generate(generate)

# %% [markdown] key="10-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("10.2")` gives a nudge, `hint("10.2", 2)` says more, and
# `hint("10.2", 3)` is nearly the code. The same goes for 10.3 to 10.5.

# %% [markdown] key="10-until-prose" lang="en"
# ## 10.3 Stop at the end
#
# A text ends when the model chooses the token `eos`. It belongs to the result, as the last token,
# and no call follows it. If it does not come, `max_tokens` is the end. An `eos` in the prompt means
# nothing.


# %% key="10-until" exercise="10.3" tags=["solution"]
def generate_until(model, prompt, max_tokens, eos):
    """Like generate, but ends after the token eos."""
    output = model(torch.tensor([prompt]))
    tokens = [int(output.logits[0, -1].argmax())]
    # BEGIN SOLUTION: go on as before, until eos has come or there are max_tokens
    while len(tokens) < max_tokens and tokens[-1] != eos:
        output = model(torch.tensor([tokens[-1:]]), output.past_key_values)
        tokens.append(int(output.logits[0, -1].argmax()))
    return tokens
    # END SOLUTION


# %% key="10-until-check" exercise="10.3" tags=["check"]
check.ex10_generate_until(generate_until)

# %% [markdown] key="10-padded-prose" lang="en"
# ## 10.4 A rectangle of prompts
#
# Prompts of different lengths become one batch, padded with `pad` on the left. Return a dict of
# three int64 tensors, each (rows, longest):
#
# - `input_ids`;
# - `attention_mask`: 1 at real tokens, 0 at padding;
# - `position_ids`: 0, 1, 2 ... from each row's first real token on, and 0 at padding.


# %% key="10-padded" exercise="10.4" tags=["stub"]
def left_padded(prompts, pad):
    """prompts: lists of token ids. Returns input_ids, attention_mask and position_ids."""
    raise NotImplementedError("exercise 10.4: pad each row on the left, and say where it begins")


# %% key="10-padded" exercise="10.4" tags=["solution"]
def left_padded(prompts, pad):
    """prompts: lists of token ids. Returns input_ids, attention_mask and position_ids."""
    longest = max(map(len, prompts))
    gaps = [longest - len(prompt) for prompt in prompts]
    rows = list(zip(gaps, prompts, strict=True))
    return {
        "input_ids": torch.tensor([[pad] * gap + prompt for gap, prompt in rows]),
        "attention_mask": torch.tensor([[0] * gap + [1] * len(prompt) for gap, prompt in rows]),
        "position_ids": torch.tensor([[0] * gap + [*range(len(prompt))] for gap, prompt in rows]),
    }


# %% key="10-padded-check" exercise="10.4" tags=["check"]
check.ex10_left_padded(left_padded)

# %% [markdown] key="10-batch-prose" lang="en"
# ## 10.5 A batch
#
# Call `model(input_ids, past_key_values, attention_mask, position_ids)` with all rows at once. The
# mask covers the tokens in the cache too, so it grows by a column in each call. Stop as soon as
# every row has its `eos`. Return a list of token ids for each row, up to and with its `eos`.
#
# The models have absolute positions (GPT-2): a wrong one changes the text.


# %% key="10-batch" exercise="10.5" tags=["stub"]
def generate_batch(model, prompts, max_tokens, pad, eos):
    """Greedy tokens of each prompt: a list of lists."""
    raise NotImplementedError("exercise 10.5: prefill the rectangle, then one column a call")


# %% key="10-batch" exercise="10.5" tags=["solution"]
def generate_batch(model, prompts, max_tokens, pad, eos):
    """Greedy tokens of each prompt: a list of lists."""
    batch = left_padded(prompts, pad)
    mask = batch["attention_mask"]
    output = model(batch["input_ids"], None, mask, batch["position_ids"])
    tokens = output.logits[:, -1].argmax(-1, keepdim=True)  # (rows, 1)
    columns, ended = [tokens], tokens == eos
    while len(columns) < max_tokens and not ended.all():
        mask = torch.cat([mask, torch.ones_like(tokens)], dim=1)
        positions = mask.sum(dim=1, keepdim=True) - 1
        output = model(tokens, output.past_key_values, mask, positions)
        tokens = output.logits[:, -1].argmax(-1, keepdim=True)
        columns.append(tokens)
        ended |= tokens == eos
    rows = torch.cat(columns, dim=1).tolist()
    return [row[: row.index(eos) + 1] if eos in row else row for row in rows]


# %% key="10-batch-check" exercise="10.5" tags=["check"]
check.ex10_generate_batch(generate_batch)

# %% [markdown] key="10-engine-prose" lang="en"
# ## On the real model
#
# Your loop, transformers' `generate` and our engine on four prompts, each of another length. All
# three must write the same. What they compute is not the same.

# %% key="10-engine"
lengths = (40, 12, 24, 6)
prompts = [
    held_out_prompts(loaded.tokenizer, count=1, num_tokens=length, seed=seed)[0]
    for seed, length in enumerate(lengths)
]
llm = LLM(loaded)
outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=8))
expected = [list(each.outputs[0].token_ids) for each in outputs]
print(f"engine: {llm.metrics.computed_tokens} tokens computed in {llm.metrics.steps} steps")

# %% key="10-compare" exercise="10.5" tags=["check"]
model = PastModel(loaded.model)
eos = loaded.tokenizer.eos_token_id
mine = generate_batch(model, [each["prompt_token_ids"] for each in prompts], 8, eos, eos)
for row in mine:
    print(repr(loaded.tokenizer.decode(row)))
print(f"your batch: {model.computed} token ids went in, padding included")
assert mine == expected
assert model.computed - llm.metrics.computed_tokens == 4 * 40 - sum(lengths)

# %% [markdown] key="10-close" lang="en"
# The difference is the padding of the first call. After it both compute one token a row and step:
# but yours still carries the padding in its cache and its mask.
#
# **Change one thing**: ask for `max_tokens` of 8 with an `eos` that only one row writes early. Your
# loop goes on for the row that has ended. What does the engine do with it?
