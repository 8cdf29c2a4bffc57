# %% [markdown] key="18-title" lang="en"
# # Exercise 18: a block allocator and paged attention, inside the engine
#
# You write the two halves of PagedAttention: attention that reads through a block table, and the
# pool that hands out blocks, shares them and copies on write. In the end the engine serves real
# requests with both.
#
# The first answer is worked for you, the next two lack their last lines, the last two are yours.
# About 40 minutes.

# %% key="18-imports"
import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.kv_cache import BlockAllocator, OutOfBlocksError

# %% [markdown] key="18-data" lang="en"
# ## The data
#
# A layer keeps its keys in one tensor of shape (blocks, block size, KV heads, head dimension), and
# its values in another. A request's block table lists its physical blocks in logical order. Slots
# that nobody has written hold anything; here they hold NaN.

# %% key="18-example"
torch.manual_seed(0)
key_blocks, value_blocks = torch.randn(2, 5, 4, 2, 8)  # 5 blocks of 4 slots, 2 KV heads of 8
block_table, num_tokens = [3, 0], 6
key_blocks[0, 2:] = value_blocks[0, 2:] = torch.nan  # logical block 1 is half full
print("keys", tuple(key_blocks.shape), "table", block_table, "tokens", num_tokens)

# %% [markdown] key="18-gather-prose" lang="en"
# ## 18.1 In order again (worked)
#
# The rows of a request's tokens, in their order: (num_tokens, KV heads, head dimension). A table
# may hold more blocks than the tokens fill.


# %% key="18-gather"
def gather(blocks, block_table, num_tokens):
    """blocks: (blocks, block size, ...), one layer's keys or values. Returns (num_tokens, ...)."""
    in_order = blocks[block_table]  # (logical blocks, block size, KV heads, head dim)
    return in_order.flatten(0, 1)[:num_tokens]


# %% key="18-gather-check"
check.ex18_gather(gather)

# %% [markdown] key="18-attention-prose" lang="en"
# ## 18.2 Attention through the table
#
# The newest token's query, one row for each head, attends to all `num_tokens` tokens, itself
# included. Neighbouring query heads share a KV head: with 4 heads and 2 KV heads, heads 0 and 1
# read KV head 0. Scores are multiplied with `scale`. Replace the line that raises.


# %% key="18-attention" exercise="18.2" tags=["solution"]
def paged_attention(query, key_blocks, value_blocks, block_table, num_tokens, scale):
    """query: (heads, head dim). Returns (heads, head dim)."""
    keys = gather(key_blocks, block_table, num_tokens)  # (num_tokens, KV heads, head dim)
    values = gather(value_blocks, block_table, num_tokens)
    group = len(query) // keys.shape[1]  # query heads that share a KV head
    # BEGIN SOLUTION: give each query head its keys and values; score, softmax, mix
    keys, values = (kind.repeat_interleave(group, dim=1) for kind in (keys, values))
    scores = torch.einsum("hd,thd->ht", query, keys) * scale
    return torch.einsum("ht,thd->hd", scores.softmax(dim=-1), values)
    # END SOLUTION


# %% key="18-attention-check" exercise="18.2" tags=["check"]
check.ex18_paged_attention(paged_attention)

# %% [markdown] key="18-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("18.2")` gives a nudge, `hint("18.2", 2)` says more, and
# `hint("18.2", 3)` is nearly the code. The same goes for 18.3 to 18.5.

# %% [markdown] key="18-blocks-prose" lang="en"
# ## A pool of blocks
#
# Now the other half. The engine asks a pool for blocks, and gives them back. A pool is a
# `BlockAllocator` with five methods; these are the first two, and what it remembers.


# %% key="18-blocks"
class Blocks(BlockAllocator):
    """Which blocks are free, and how many references each has."""

    def __init__(self, num_blocks, block_size):
        super().__init__(num_blocks, block_size)
        self.free = list(range(num_blocks))
        self.count = [0] * num_blocks  # references to each block; 0 is free

    @property
    def num_free(self):
        return len(self.free)

    def num_refs(self, block):
        return self.count[block]


# %% [markdown] key="18-free-prose" lang="en"
# ## 18.3 A free list
#
# `allocate` takes `count` free blocks off the list, counts one reference for each, and returns them
# as a list. Any free block will do, in any order. If too few are free it raises `OutOfBlocksError`
# and changes **nothing**: the engine then asks somebody else to make room, and tries again.


# %% key="18-free" exercise="18.3" tags=["solution"]
class FreeList(Blocks):
    """Blocks with one owner each."""

    def allocate(self, count, after=None):
        """A list of `count` blocks. after: the request's last block; you may ignore it."""
        # BEGIN SOLUTION: raise if too few are free; else take blocks, count them, return them
        if count > len(self.free):
            raise OutOfBlocksError(f"{count} blocks wanted, {len(self.free)} free.")
        blocks = [self.free.pop() for _ in range(count)]
        for block in blocks:
            self.count[block] = 1
        return blocks
        # END SOLUTION

    def release(self, blocks):
        for block in blocks:
            self.count[block] = 0
            self.free.append(block)

    def share(self, blocks):
        assert not list(blocks), "this pool shares nothing"


# %% key="18-free-check" exercise="18.3" tags=["check"]
check.ex18_free_list(FreeList)

# %% [markdown] key="18-counted-prose" lang="en"
# ## 18.4 Owners, counted
#
# With sharing, a block may have several owners. `share` adds a reference to each block. (A free one
# may be shared too, when a cached prefix is found again: it is not free any more.) `release` gives
# one reference up; the block is free when none is left. Releasing a free block is a bug somewhere:
# raise `ValueError`.


# %% key="18-counted" exercise="18.4" tags=["stub"]
class CountedPool(FreeList):
    """Blocks with any number of owners."""

    def share(self, blocks):
        """One more reference to each block."""
        raise NotImplementedError("exercise 18.4: count one more owner for each block")

    def release(self, blocks):
        """One reference less to each block; free when none is left."""
        raise NotImplementedError("exercise 18.4: count one owner less, and free what has none")


# %% key="18-counted" exercise="18.4" tags=["solution"]
class CountedPool(FreeList):
    """Blocks with any number of owners."""

    def share(self, blocks):
        """One more reference to each block."""
        for block in blocks:
            if self.count[block] == 0:
                self.free.remove(block)
            self.count[block] += 1

    def release(self, blocks):
        """One reference less to each block; free when none is left."""
        for block in blocks:
            if self.count[block] == 0:
                raise ValueError(f"Block {block} is free already.")
            self.count[block] -= 1
            if self.count[block] == 0:
                self.free.append(block)


# %% key="18-counted-check" exercise="18.3" tags=["check"]
check.ex18_counted_pool(CountedPool)

# %% [markdown] key="18-cow-prose" lang="en"
# ## 18.5 Copy on write
#
# A request is about to write tokens from position `start` on. Each block of its table from there on
# that has other owners must be replaced, **within** `block_table`, by a fresh one; the old one is
# released. Return the (source, destination) pairs, for the engine to copy. Blocks before `start`
# stay shared, blocks of its own stay. If too few blocks are free, nothing changes.


# %% key="18-cow" exercise="18.5" tags=["stub"]
class MyPool(CountedPool):
    """With copy-on-write."""

    def make_writable(self, block_table, start):
        """A list of (source, destination) blocks to copy; block_table is changed."""
        raise NotImplementedError("exercise 18.5: replace the shared blocks that will be written")


# %% key="18-cow" exercise="18.5" tags=["solution"]
class MyPool(CountedPool):
    """With copy-on-write."""

    def make_writable(self, block_table, start):
        """A list of (source, destination) blocks to copy; block_table is changed."""
        written = range(start // self.block_size, len(block_table))
        places = [place for place in written if self.count[block_table[place]] > 1]
        fresh = self.allocate(len(places))  # raises before anything has changed
        copies = []
        for place, block in zip(places, fresh, strict=True):
            copies.append((block_table[place], block))
            block_table[place] = block
        self.release([source for source, _ in copies])
        return copies


# %% key="18-cow-check" exercise="18.5" tags=["check"]
check.ex18_my_pool(MyPool)

# %% [markdown] key="18-engine-prose" lang="en"
# ## On the real engine
#
# Eight prompts, half of them with three continuations that share their blocks, on a memory so small
# that requests are sent back to the queue. The engine's own pool says what must come out.

# %% key="18-engine"
model = load("lab-target", dtype="float32")
prompts = held_out_prompts(model.tokenizer, count=8, num_tokens=42)
params = [
    SamplingParams(temperature=1, seed=i, n=1 + 2 * (i % 2), max_tokens=24, ignore_eos=True)
    for i in range(8)
]


def answers(llm):
    return [[c.token_ids for c in o.outputs] for o in llm.generate(prompts, params)]


expected = answers(LLM(model))
print(sum(map(len, expected)), "answers, of", len(expected[0][0]), "tokens each")

# %% key="18-engine-serve" exercise="18.4" tags=["check"]
llm = LLM(model, block_pool=MyPool(24, 8), trace=True)
assert answers(llm) == expected
most = max(max(step.block_refs) for step in llm.trace)
print(f"{llm.metrics.preemptions} requests were sent back; a block had up to {most} owners")
assert llm.metrics.preemptions > 0 and most == 3
assert llm.pool.num_free == 24

# %% [markdown] key="18-storm-prose" lang="en"
# Now with clients who leave: every fourth step one of the requests is aborted, wherever it is.
# After each step every block must be accounted for. (The engine looks too: it would name a block
# that is lost, or held twice.)

# %% key="18-storm" exercise="18.4" tags=["check"]
llm = LLM(model, block_pool=MyPool(24, 8))
names = [name for p, s in zip(prompts, params, strict=True) for name in llm.add_request(p, s)]
steps, leaving = 0, names[::3]
while llm.has_work:
    llm.step()
    llm.pool.check_integrity()
    steps += 1
    if steps % 4 == 0 and leaving:
        llm.abort(leaving.pop())
done = llm.metrics
print(f"{done.finished} finished, {done.aborted} aborted, in {steps} steps; none lost")
assert done.finished + done.aborted == len(names)
assert llm.pool.num_free == 24

# %% [markdown] key="18-both-prose" lang="en"
# Last, both halves together. `attention=` calls your function for each token in each of six layers,
# so it is slow; the tokens are those of the engine's own kernel.

# %% key="18-both" exercise="18.4" tags=["check"]
texts = ["def read(self, size):\n    return", "class Queue:\n    def put(self, item):\n"]
greedy = SamplingParams(temperature=0, max_tokens=16)
mine = LLM(model, block_pool=MyPool(16, 4), attention=paged_attention).generate(texts, greedy)
theirs = LLM(model).generate(texts, greedy)
for own, reference in zip(mine, theirs, strict=True):
    print(repr(own.outputs[0].text))
    assert own.outputs[0].token_ids == reference.outputs[0].token_ids

# %% [markdown] key="18-close" lang="en"
# The pool never touched a tensor, and the attention never asked who owns a block: the block table
# is all that they have in common.
#
# **Change one thing**: in `gather`, read one token more than `num_tokens`, and run the last code
# cell again. What does the engine say, and would it have noticed if unwritten slots held zeros?
