# %% key="00-header" tags=["hide"]
from llmserve_lab.course import footer, header

header("00_start_here")

# %% [markdown] key="00-how" lang="en"
# ## How this course works
#
# Every chapter asks you to **predict**, then **runs** something real, then asks **why**. After that
# you change one thing, and in the exercises you build the part yourself.
#
# Run a cell with Shift+Enter. Nothing leaves this machine: your guesses and answers are kept in one
# file in your user folder.

# %% key="00-imports"
from llmserve_lab import LLM, SamplingParams, doctor, load
from llmserve_lab.course import because, check, misconception, predict, progress, quiz, reveal
from llmserve_lab.plots import kv_block_map, show, step_times
from llmserve_lab.widgets import live

# %% [markdown] key="00-doctor-prose" lang="en"
# ## What works on this machine?
#
# A red row says what to do about it. Without a GPU everything here still runs; the numbers differ,
# the reasons do not.

# %% key="00-doctor"
doctor()

# %% [markdown] key="00-model-prose" lang="en"
# ## A small, real model
#
# `lab-target` is a Llama of a few million parameters, trained on Python's own standard library. It
# continues Python source. A model this small is no help with your work, but it is served exactly as
# a large one is.

# %% key="00-model"
model = load("lab-target")
config = model.model.config
print(f"{model.num_parameters:,} parameters in {model.model.dtype}:")
print(model.why_dtype)
print(config.num_hidden_layers, "layers of", config.hidden_size)

# %% [markdown] key="00-tokens-prose" lang="en"
# A model reads and writes *tokens*: pieces of text, each with a number.

# %% key="00-tokens"
prompt = "class Stack:\n    def __init__(self):\n"
token_ids = model.tokenizer(prompt)["input_ids"]
print(len(prompt), "characters,", len(token_ids), "tokens")
print(*(repr(model.tokenizer.decode([token])) for token in token_ids))

# %% [markdown] key="00-predict-prose" lang="en"
# ## Predict: how fast will it write?
#
# Commit to a number before you run it. There is nothing to win by being right: a guess that is
# written down is what makes the result stick.

# %% key="00-predict"
question = "One request, 120 tokens, on this machine: how many tokens per second?"
predict("00.speed", question, low=1, high=10_000, unit="tokens/s", log=True)

# %% [markdown] key="00-live-prose" lang="en"
# ## Run: watch it write
#
# Each bar is one *step* of the engine: one run of the model. Each outlined piece of text is a
# token. The cells below are *blocks* of the KV cache, where the engine keeps what it has computed
# about every token so far.

# %% key="00-live"
llm = LLM(model, trace=True)
params = SamplingParams(temperature=0.8, seed=1, max_tokens=120, ignore_eos=True)
result = live(llm, prompt, params)
result

# %% key="00-reveal"
reveal("00.speed", result.num_tokens / result.seconds)

# %% [markdown] key="00-steps-prose" lang="en"
# ## See: two kinds of step
#
# The first step is *prefill*: all tokens of the prompt at once. Every later step is *decode*: one
# token, which becomes the input of the next step.

# %% key="00-steps"
show(step_times(llm.trace))

# %% key="00-count"
first, *rest = llm.trace
print("prefill computed", first.num_tokens, "tokens in one step")
print("decode computed", sum(step.num_tokens for step in rest), "tokens in", len(rest), "steps")
assert first.num_tokens == len(token_ids)
assert len(llm.trace) == result.num_tokens

# %% key="00-why"
because(
    "00.one-at-a-time",
    "Why did 120 tokens of output take 120 steps, while the whole prompt took one?",
    explain=(
        "The prompt is known, so its tokens run together. An output token is chosen from what the "
        "model says about **all** tokens before it: the next step cannot begin until it is known."
    ),
)

# %% [markdown] key="00-blocks-prose" lang="en"
# ## See: where the tokens live
#
# Step through the run with the slider (arrow keys work). A block holds 16 tokens; the request takes
# a new one only when its last is full. The hatched part is allocated and still empty.
#
# Steps count from 0, and a long run shows every second one. The slider begins where the cache is
# fullest: in the last step the request ends and gives its blocks back.

# %% key="00-blocks"
show(kv_block_map(llm.trace))

# %% key="00-blocks-count"
last = llm.trace[-1]
held = last.finished[0]
print(held.num_computed_tokens, "tokens in", len(held.block_table), "blocks:", held.block_table)

# %% [markdown] key="00-check-prose" lang="en"
# ## Check: say it in code
#
# `check` tries a function on inputs that you do not see. This one is right. Break it (say, leave
# out the minus signs) and run both cells again: the answer names the input that went wrong.


# %% key="00-blocks-needed"
def blocks_needed(num_tokens, block_size):
    """How many blocks hold this many tokens."""
    return -(-num_tokens // block_size)


assert blocks_needed(held.num_computed_tokens, last.block_size) == len(held.block_table)

# %% key="00-check"
check.ex00_blocks(blocks_needed)

# %% [markdown] key="00-quiz-prose" lang="en"
# ## Quiz
#
# Every answer explains itself, so a wrong one is worth trying. Number keys choose, Enter answers.

# %% key="00-quiz"
quiz("00.engine")

# %% [markdown] key="00-belief-prose" lang="en"
# ## A misconception, refuted by running it

# %% key="00-belief"
belief = misconception("00.answer-is-ready")
belief

# %% key="00-refute"
belief.refute()

# %% [markdown] key="00-change-prose" lang="en"
# ## Change one thing
#
# Give the engine four prompts instead of one. Before you run it: will there be more steps, or
# longer ones?

# %% key="00-change"
starts = ["import ", "def main(", "class Queue:\n", "# A list of "]
several = LLM(model, trace=True)
print(live(several, starts, SamplingParams(temperature=0.8, seed=2, max_tokens=40)))
print(len(several.trace), "steps")

# %% key="00-progress"
progress()

# %% key="00-footer" tags=["hide"]
footer("00_start_here")
