# %% [markdown] key="09-title" lang="en"
# # Exercise 09: which strategy for which bottleneck
#
# You judge drafts as the engine does, write a proposer that then speculates for it, and choose a
# strategy for servers with different bottlenecks, by running them.
#
# The first answer is worked for you, the next two lack their last lines, the last two are yours.
# About 30 minutes.

# %% key="09-imports"
from llmserve_lab import LLM, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.bench import Bench
from llmserve_lab.course.strategies import (
    QUANTIZED,
    SPECULATIVE,
    STRATEGIES,
    greedy_lengths,
    serve_with,
    shared_prefix_requests,
)

# %% [markdown] key="09-share-prose" lang="en"
# ## 09.1 What is left of a measure (worked)
#
# A run is a dict of counts. Compared with the run without any strategy, below 1 is a saving, above
# 1 a cost.


# %% key="09-share"
def share(none, run, measure):
    """What is left of `measure`, as a share of what it was without the strategy."""
    return run[measure] / none[measure]


none = {"steps": 124, "tokens": 1204}
drafts = {"steps": 62, "tokens": 1505}
print(share(none, drafts, "steps"), "of the steps,", share(none, drafts, "tokens"), "of the tokens")

# %% key="09-share-check"
check.ex09_share(share)

# %% [markdown] key="09-tokens-prose" lang="en"
# ## 09.2 Tokens a step
#
# Each of `count` drafts is right with probability `alpha`, and counts only if all before it are
# right. A step brings $1 + \alpha + \alpha^2 + \dots + \alpha^{count}$ tokens on average. Replace
# the line that raises.


# %% key="09-tokens" exercise="09.2" tags=["solution"]
def tokens_per_step(alpha, count):
    """Tokens that a step with `count` drafts brings on average, the model's own one included."""
    total, chance = 0.0, 1.0
    for _ in range(count + 1):
        # BEGIN SOLUTION: add the chance of this token, then make it the chance of the next
        total += chance
        chance *= alpha
    return total
    # END SOLUTION


# %% key="09-tokens-check" exercise="09.2" tags=["check"]
check.ex09_tokens_per_step(tokens_per_step)

# %% [markdown] key="09-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("09.2")` gives a nudge, `hint("09.2", 2)` says more, and
# `hint("09.2", 3)` is nearly the code. The same goes for 09.3 to 09.5.

# %% [markdown] key="09-judge-prose" lang="en"
# ## 09.3 Judge the drafts
#
# One pass gives the model's own greedy choice after the text, and after each draft: `choices` is
# one longer than `drafts`. Return the tokens that the step brings: choices, up to the first that
# its draft is not. If all drafts are right, the last choice comes on top.


# %% key="09-judge" exercise="09.3" tags=["solution"]
def judge(drafts, choices):
    """The tokens that come of a step: right drafts, then one of the model's own."""
    kept = []
    for draft, choice in zip(drafts, choices[:-1], strict=True):
        kept.append(choice)
        right = draft == choice
        # BEGIN SOLUTION: stop after a wrong draft; at the end, add the last choice
        if not right:
            return kept
    return [*kept, choices[-1]]
    # END SOLUTION


# %% key="09-judge-check" exercise="09.3" tags=["check"]
check.ex09_judge(judge)

# %% [markdown] key="09-propose-prose" lang="en"
# ## 09.4 A draft without a model
#
# Text repeats itself. Find the latest place further left where the last **two** tokens stood
# before, and return up to `count` tokens that followed them there; an empty list if there is none.
# In `[1, 2, 7, 1, 2, 8, 9, 1, 2]` that is 8, 9, 1 and so on.


# %% key="09-propose" exercise="09.4" tags=["stub"]
def propose(token_ids, count):
    """Up to `count` tokens that followed the last two before, at the latest place."""
    raise NotImplementedError("exercise 09.4: look for the last two tokens further left")


# %% key="09-propose" exercise="09.4" tags=["solution"]
def propose(token_ids, count):
    """Up to `count` tokens that followed the last two before, at the latest place."""
    last = token_ids[-2:]
    for start in range(len(token_ids) - 3, -1, -1):
        if token_ids[start : start + 2] == last:
            return token_ids[start + 2 : start + 2 + count]
    return []


# %% key="09-propose-check" exercise="09.4" tags=["check"]
check.ex09_propose(propose)

# %% [markdown] key="09-choose-prose" lang="en"
# ## 09.5 Which strategy for which bottleneck
#
# `bench.run(strategy)` serves a fixed set of requests to an 8B model on a simulated GPU, with one
# strategy or none: the engine's own scheduler on a virtual clock. It returns four measures.

# %% key="09-bench"
bench = Bench(shared=1000, own=50, answers=(20, 60), places=4)
for strategy in (None, *STRATEGIES):
    run = bench.run(strategy)
    told = ", ".join(f"{name} {value:.3g}" for name, value in run.items())
    print(f"{strategy or 'none':21}{told}")

# %% [markdown] key="09-choose-task" lang="en"
# Return the strategy that improves `measure` most: for `"throughput"` more is better, for the
# others less. An improvement of at most 5% of the value without any is no help; return `None` if
# nothing helps. With `exact=True` the answers must not change: leave `QUANTIZED` out.


# %% key="09-choose" exercise="09.5" tags=["stub"]
def choose(bench, measure, exact):
    """The strategy that helps `measure` most, or None."""
    raise NotImplementedError("exercise 09.5: run the server with each strategy, and compare")


# %% key="09-choose" exercise="09.5" tags=["solution"]
def choose(bench, measure, exact):
    """The strategy that helps `measure` most, or None."""
    none = bench.run()[measure]
    best, most = None, 0.05
    for strategy in STRATEGIES:
        if exact and strategy == QUANTIZED:
            continue
        change = bench.run(strategy)[measure] / none - 1
        gain = change if measure == "throughput" else -change
        if gain > most:
            best, most = strategy, gain
    return best


# %% key="09-choose-check" exercise="09.5" tags=["check"]
check.ex09_choose(choose)

# %% [markdown] key="09-servers-prose" lang="en"
# Three servers and what their users complain about. Before you run it: which strategy for which?

# %% key="09-servers" exercise="09.5" tags=["check"]
crowd = Bench(0, 48, (4, 96), places=6, count=14, alpha=0.2)  # a draft that is seldom right
servers = {
    "one user, slow text": (Bench(0, 64, (20, 40), places=1, count=3), "pace"),
    "a crowd, answers of all lengths": (crowd, "throughput"),
    "long instructions, late first word": (Bench(3000, 32, (8, 8), places=4, count=12), "first"),
}
found = {name: choose(server, measure, True) for name, (server, measure) in servers.items()}
for name, strategy in found.items():
    print(f"{name}: {strategy}")
assert len(set(found.values())) == 3

# %% [markdown] key="09-engine-prose" lang="en"
# ## On the real engine
#
# `LLM(draft=...)` takes any object with `propose`. Yours now speculates for the bundled model.
# Every token is still the model's own, also where your guesses are bad.


# %% key="09-engine" exercise="09.4" tags=["check"]
class Mine:
    def propose(self, token_ids, num_tokens):
        return propose(list(token_ids), num_tokens)


model = load("lab-target", "float32")
names = ("prefill", "decode", "draft", "verify", "sample", "wait", "read", "write")
text = "".join(f'    ("{name}_seconds", 0.0),\n' for name in names)
texts = {}
for draft in (None, Mine()):
    llm = LLM(model, draft=draft, num_blocks=32)
    (output,) = llm.generate("FIELDS = [\n" + text, greedy_lengths([48]))
    texts[draft] = output.outputs[0].token_ids
    print(f"{llm.metrics.steps} steps, {llm.metrics.accepted_tokens} guesses were right")
assert len(set(texts.values())) == 1

# %% [markdown] key="09-judged-prose" lang="en"
# Last, the engine's own drafts through your two functions: what `judge` keeps must be what it kept.

# %% key="09-judged" exercise="09.3" tags=["check"]
prompts = shared_prefix_requests(load("lab-target").tokenizer, count=4, shared=32, own=16)
run = serve_with((SPECULATIVE,), prompts, greedy_lengths([24] * 4), "drafts")
kept = checked = 0
for step in run.trace:
    for view in step.drafts:
        new = [t.token_id for t in step.sampled if t.request_id == view.request_id]
        right = view.token_ids[: view.num_accepted]
        choices = [*right, new[-1], *[-1] * view.num_rejected]  # after a wrong one: not known
        assert judge(list(view.token_ids), choices) == new
        kept, checked = kept + view.num_accepted, checked + 1
print(f"{checked} steps judged alike, {kept} drafts kept")

# %% key="09-formula" exercise="09.2" tags=["check"]
wrong = sum(not view.has_bonus for step in run.trace for view in step.drafts)
alpha = kept / (kept + wrong)
print(f"alpha {alpha:.2f}: {tokens_per_step(alpha, 4):.2f} tokens a step by your formula, ", end="")
print(f"{1 + kept / checked:.2f} counted")
assert 1 <= 1 + kept / checked <= 5

# %% [markdown] key="09-close" lang="en"
# **Change one thing**: give `Mine` the prompt `"import os\n"`. Nothing repeats there. How many
# guesses are right, and what does the text look like?
