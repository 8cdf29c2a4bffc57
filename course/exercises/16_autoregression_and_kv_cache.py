# %% [markdown] key="16-title" lang="en"
# # Exercise 16: match prefixes by block hashes
#
# You write the two halves of a prefix cache: how a new prompt finds blocks that others computed,
# and how a computed block becomes findable. In the end the real engine serves requests with them,
# and you compare the hits with its own.
#
# The first part is worked for you, the next two lack their last lines, the last two are yours.
# About 30 minutes.

# %% key="16-imports"
from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.block_hash import BlockHash
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.own_prefix import Entry, OwnPrefixPool
from llmserve_lab.kv_cache import BlockPool

# %% [markdown] key="16-data" lang="en"
# ## The data
#
# `h(before, tokens)` hashes one block after what came before it, and gives its *key*, a number. A
# table says under which key which physical block can be found. An entry also holds the salt and
# **all** tokens up to the block's end: two different texts may get the same key.

# %% key="16-example"
h = BlockHash()
print(h("", [5, 6, 7, 8]), "for the first block, without a salt")
print(h(h("", [5, 6, 7, 8]), [5, 6, 7, 8]), "for the same tokens, once more after it")
entry = Entry(block=3, salt="", tokens=(5, 6, 7, 8))
table = {h("", [5, 6, 7, 8]): entry}
print(table)
print(entry.block, entry.tokens == (5, 6, 7, 8), "but a list is not equal:", entry.tokens == [5])

# %% [markdown] key="16-blocks-prose" lang="en"
# ## 16.1 Full blocks (worked)
#
# Only a block that is full can be shared: who takes half a block would write the rest of it.


# %% key="16-blocks"
def full_blocks(tokens, size):
    """The token ids of every full block, in order: a list of lists of `size` ids."""
    return [tokens[i : i + size] for i in range(0, len(tokens) - size + 1, size)]


# %% key="16-blocks-check"
check.ex16_full_blocks(full_blocks)

# %% [markdown] key="16-keys-prose" lang="en"
# ## 16.2 Chained keys
#
# A block's keys and values depend on everything before it. So must its key: hash each block after
# the key of the block before. What stands before the first block is the `salt`.


# %% key="16-keys" exercise="16.2" tags=["solution"]
def keys(tokens, size, salt, h):
    """The chained key of every full block, a list."""
    found, before = [], salt
    for block in full_blocks(tokens, size):
        # BEGIN SOLUTION: hash the block after what came before it; keep the key
        before = h(before, block)
        found.append(before)
    return found
    # END SOLUTION


# %% key="16-keys-check" exercise="16.2" tags=["check"]
check.ex16_keys(keys)

# %% [markdown] key="16-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("16.2")` gives a nudge, `hint("16.2", 2)` says more, and
# `hint("16.2", 3)` is nearly the code. The same goes for 16.3 to 16.5.

# %% [markdown] key="16-longest-prose" lang="en"
# ## 16.3 The longest run
#
# Return the physical blocks of the longest run of `wanted` keys that the table has, *from the
# start*. A block in the middle may have been given up while a later one is still there: behind a
# gap nothing can be used, since attention needs the whole beginning.


# %% key="16-longest" exercise="16.3" tags=["solution"]
def longest(wanted, table):
    """The block numbers for the first keys of `wanted`, up to the first that is missing."""
    blocks = []
    for key in wanted:
        # BEGIN SOLUTION: stop at the first key that is missing; else keep its entry's block
        if key not in table:
            break
        blocks.append(table[key].block)
    return blocks
    # END SOLUTION


# %% key="16-longest-check" exercise="16.3" tags=["check"]
check.ex16_longest(longest)

# %% [markdown] key="16-match-prose" lang="en"
# ## 16.4 When a match must be refused
#
# Now the whole lookup, for a prompt. It must also stop where
#
# - the entry is of another text (a collision: compare **all** tokens up to there),
# - or of another salt, even if the keys happen to be equal,
# - or no token would be left to compute: the last one must give the logits.


# %% key="16-match" exercise="16.4" tags=["stub"]
def match(tokens, size, salt, table, h):
    """The physical blocks that a prompt can start with, a list of ints."""
    raise NotImplementedError("exercise 16.4: find the longest run that is really the same")


# %% key="16-match" exercise="16.4" tags=["solution"]
def match(tokens, size, salt, table, h):
    """The physical blocks that a prompt can start with, a list of ints."""
    blocks = []
    for index, key in enumerate(keys(tokens[:-1], size, salt, h)):  # one token is left over
        entry = table.get(key)
        beginning = tuple(tokens[: (index + 1) * size])
        if entry is None or entry.salt != salt or entry.tokens != beginning:
            break
        blocks.append(entry.block)
    return blocks


# %% key="16-match-check" exercise="16.4" tags=["check"]
check.ex16_match(match)

# %% [markdown] key="16-publish-prose" lang="en"
# ## 16.5 Make a block findable
#
# `block` has been computed; `tokens` are all from the start to its last one. Return a *new* table
# that has it too. Two things leave the table as it was: the last block is not full yet, or the key
# is taken already (of two equal blocks the first stays the findable one).


# %% key="16-publish" exercise="16.5" tags=["stub"]
def publish(table, block, tokens, size, salt, h):
    """A new table in which `block`, the last of `tokens`, is found under its key."""
    raise NotImplementedError("exercise 16.5: put the block into a new table")


# %% key="16-publish" exercise="16.5" tags=["solution"]
def publish(table, block, tokens, size, salt, h):
    """A new table in which `block`, the last of `tokens`, is found under its key."""
    if not tokens or len(tokens) % size:
        return dict(table)
    key = keys(tokens, size, salt, h)[-1]
    if key in table:
        return dict(table)
    return {**table, key: Entry(block, salt, tuple(tokens))}


# %% key="16-publish-check" exercise="16.5" tags=["check"]
check.ex16_publish(publish)

# %% [markdown] key="16-engine-prose" lang="en"
# ## Inside the real engine
#
# `OwnPrefixPool` asks *your* `match` for each new request and *your* `publish` for each full block.
# When a block is handed out again, it takes the block's entry out of your table. Six prompts: a
# system text of 100 tokens, then own ones; two of them have a salt.

# %% key="16-engine"
model = load("lab-target", dtype="float32")
system = held_out_prompts(model.tokenizer, 1, 100)[0]["prompt_token_ids"]
own = held_out_prompts(model.tokenizer, 6, 30, seed=1)
prompts = [{"prompt_token_ids": system + each["prompt_token_ids"]} for each in own]
prompts[3]["cache_salt"] = prompts[4]["cache_salt"] = "another tenant"
params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def serve(pool):
    """Tokens found and tokens written, for each request, one after another."""
    llm = LLM(model, block_pool=pool)
    outputs = [llm.generate(prompt, params)[0] for prompt in [*prompts, prompts[0]]]
    pool.check_integrity()
    return [(out.metrics.num_hit_tokens, out.outputs[0].token_ids) for out in outputs]


# %% key="16-engine-theirs"
cold = serve(BlockPool(96, 16))
theirs = serve(BlockPool(96, 16, enable_prefix_caching=True))
print("the engine's own hits:", [hits for hits, _ in theirs])
assert [tokens for _, tokens in theirs] == [tokens for _, tokens in cold]

# %% [markdown] key="16-engine-guess" lang="en"
# Before you run yours: why does the fourth request find nothing, and the last one 128 of its 130
# tokens?

# %% key="16-engine-mine" exercise="16.4" tags=["check"]
mine = serve(OwnPrefixPool(96, 16, match, publish))
print("your hits:            ", [hits for hits, _ in mine])
assert mine == theirs

# %% [markdown] key="16-collide-prose" lang="en"
# Now with the worst hash there is: every block has the same key. Whoever trusts the key alone would
# serve one user another user's text. Yours finds less, and writes the same.

# %% key="16-collide" exercise="16.4" tags=["check"]
collided = serve(OwnPrefixPool(96, 16, match, publish, h=BlockHash(num_values=1)))
print("with one key for all:", [hits for hits, _ in collided])
assert [tokens for _, tokens in collided] == [tokens for _, tokens in cold]
assert all(hits <= most for (hits, _), (most, _) in zip(collided, theirs, strict=True))

# %% [markdown] key="16-stale-prose" lang="en"
# And a fault that real engines have shipped: a block is handed out again, but its entry stays. On a
# pool of 10 blocks another prompt overwrites all of them; then the first one comes again.

# %% key="16-stale" exercise="16.4" tags=["check"]
first, (other,) = prompts[0], held_out_prompts(model.tokenizer, 1, 140, seed=2)
for forget in (True, False):
    llm = LLM(model, block_pool=OwnPrefixPool(10, 16, match, publish, forget=forget))
    for prompt in (first, other):
        llm.generate(prompt, params)
    again = llm.generate(first, params)[0]
    right = again.outputs[0].token_ids == cold[0][1]
    kind = "taken out" if forget else "left there"
    print(f"entries {kind}: {again.metrics.num_hit_tokens} found, right answer: {right}")
    assert right == forget

# %% [markdown] key="16-close" lang="en"
# No comparison of tokens helps there: the entry is right about what the block *held*. So a table
# must be told of every block that is handed out.
#
# **Change one thing**: let `serve` send all prompts at once, `outputs = llm.generate(prompts,
# params)`. Your hits are no longer the engine's: how many does each find, and why? (Your table has
# a block once it is computed. The engine's pool also lends it in the step that fills it.)
