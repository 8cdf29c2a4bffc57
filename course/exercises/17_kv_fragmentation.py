# %% [markdown] key="17-title" lang="en"
# # Exercise 17: a first-fit allocator and its waste
#
# You build what servers reserved KV memory with: an allocator that puts each request into the first
# hole that is long enough, and joins what is given back with its neighbours. In the end it places
# real requests in the engine, and you count both kinds of waste.
#
# The first part is worked for you, the next two lack their last lines, the last three are yours.
# About 35 minutes.

# %% key="17-imports"
from llmserve_lab import LLM, ReservingScheduler, load
from llmserve_lab.course import check, hint
from llmserve_lab.course.completions import completions
from llmserve_lab.plots import contiguous_map, show

# %% [markdown] key="17-data" lang="en"
# ## The data
#
# A memory has slots, numbered from 0, and a reservation takes adjacent ones. A **hole** is a run of
# free slots, a pair of its first slot and its length. `holes` is the list of all of them, in the
# order of their slots, and no two of them touch.

# %% key="17-example"
holes = [(4, 6), (20, 24), (60, 8)]  # slots 4 to 9, 20 to 43, 60 to 67
for start, length in holes:
    print(f"slots {start} to {start + length - 1}: {length} free")

# %% [markdown] key="17-waste-prose" lang="en"
# ## 17.1 What a reservation does not use (worked)
#
# A reservation has `length` slots, of which `used` hold a token now. In the end, `final` of them
# will have held one. Empty slots are of two kinds: a token comes *later*, or *never*.


# %% key="17-waste"
def waste(length, used, final):
    """Empty slots of a reservation: those that wait for a token, and those that get none."""
    return {"later": final - used, "never": length - final}


print(waste(length=512, used=40, final=90))

# %% key="17-waste-check"
check.ex17_waste(waste)

# %% [markdown] key="17-external-prose" lang="en"
# ## 17.2 External fragmentation
#
# Return the share of all free slots that lie outside the largest hole: 0 if everything that is free
# lies in one piece, and 0 if nothing is free.


# %% key="17-external" exercise="17.2" tags=["solution"]
def external_fragmentation(holes):
    """The share of the free slots outside the largest hole, from 0 to 1."""
    lengths = [length for _, length in holes]
    # BEGIN SOLUTION: compare the largest hole with all free slots; without holes it is 0
    if not lengths:
        return 0.0
    return 1 - max(lengths) / sum(lengths)
    # END SOLUTION


# %% key="17-external-check" exercise="17.2" tags=["check"]
check.ex17_external_fragmentation(external_fragmentation)

# %% [markdown] key="17-hints" lang="en" tags=["hint"]
# Stuck? In a new cell, `hint("17.2")` gives a nudge, `hint("17.2", 2)` says more, and
# `hint("17.2", 3)` is nearly the code. The same goes for 17.3 to 17.6.

# %% [markdown] key="17-first-prose" lang="en"
# ## 17.3 First fit
#
# Return the *index* in `holes` of the first hole with at least `length` slots, and `None` if there
# is none.


# %% key="17-first" exercise="17.3" tags=["solution"]
def first_fit(holes, length):
    """The index of the first hole that is long enough, or None."""
    for index, (_, room) in enumerate(holes):
        # BEGIN SOLUTION: stop at the first that is long enough; say None if none is
        if room >= length:
            return index
    return None
    # END SOLUTION


# %% key="17-first-check" exercise="17.3" tags=["check"]
check.ex17_first_fit(first_fit)

# %% [markdown] key="17-take-prose" lang="en"
# ## 17.4 Take
#
# The first `length` slots of hole number `index` get taken. Return the list of holes after that, a
# *new* list. A hole of which nothing is left is no hole.


# %% key="17-take" exercise="17.4" tags=["stub"]
def take(holes, index, length):
    """The holes after the first `length` slots of holes[index] are taken."""
    raise NotImplementedError("exercise 17.4: cut the slots off the front of the hole")


# %% key="17-take" exercise="17.4" tags=["solution"]
def take(holes, index, length):
    """The holes after the first `length` slots of holes[index] are taken."""
    start, room = holes[index]
    rest = [(start + length, room - length)] if room > length else []
    return holes[:index] + rest + holes[index + 1 :]


# %% key="17-take-check" exercise="17.4" tags=["check"]
check.ex17_take(take)

# %% [markdown] key="17-back-prose" lang="en"
# ## 17.5 Give back
#
# The `length` slots from `start` on become free. Return the new list of holes, in order. Where the
# new hole touches the one before it or the one after it, they become **one** hole.


# %% key="17-back" exercise="17.5" tags=["stub"]
def give_back(holes, start, length):
    """The holes after `length` slots from `start` on are free again; none of them touch."""
    raise NotImplementedError("exercise 17.5: put the hole in its place, and join those that touch")


# %% key="17-back" exercise="17.5" tags=["solution"]
def give_back(holes, start, length):
    """The holes after `length` slots from `start` on are free again; none of them touch."""
    joined = []
    for first, room in sorted([*holes, (start, length)]):
        if joined and sum(joined[-1]) == first:  # the last one ends where this one begins
            joined[-1] = (joined[-1][0], joined[-1][1] + room)
        else:
            joined.append((first, room))
    return joined


# %% key="17-back-check" exercise="17.5" tags=["check"]
check.ex17_give_back(give_back)

# %% [markdown] key="17-class-prose" lang="en"
# ## 17.6 The allocator
#
# - `allocate(owner, length)` returns the first of `length` adjacent slots, now the owner's. Where
#   they fit nowhere it returns `None`, and nothing has changed. Who holds a reservation already
#   gets a `ValueError`.
# - `free(owner)` gives them all back. Who holds none gets a `KeyError`.
#
# The grader makes random calls, hundreds of them, and after each looks for overlaps, lost slots and
# holes that were overlooked.


# %% key="17-class" exercise="17.6" tags=["stub"]
class FirstFit:
    """Reservations of adjacent slots, each in the first hole that is long enough."""

    def __init__(self, num_slots):
        raise NotImplementedError("exercise 17.6: what must it remember between calls?")

    def allocate(self, owner, length):
        """The first of `length` adjacent slots, or None."""

    def free(self, owner):
        """Give all slots of the owner back."""


# %% key="17-class" exercise="17.6" tags=["solution"]
class FirstFit:
    """Reservations of adjacent slots, each in the first hole that is long enough."""

    def __init__(self, num_slots):
        self.holes = [(0, num_slots)]
        self.reserved = {}  # owner: (start, length)

    def allocate(self, owner, length):
        """The first of `length` adjacent slots, or None."""
        if owner in self.reserved:
            raise ValueError(f"{owner!r} has a reservation already")
        index = first_fit(self.holes, length)
        if index is None:
            return None
        start = self.holes[index][0]
        self.holes = take(self.holes, index, length)
        self.reserved[owner] = (start, length)
        return start

    def free(self, owner):
        """Give all slots of the owner back."""
        self.holes = give_back(self.holes, *self.reserved.pop(owner))


# %% key="17-class-check" exercise="17.6" tags=["check"]
check.ex17_allocator(FirstFit)

# %% [markdown] key="17-engine-prose" lang="en"
# ## In the real engine
#
# 24 functions from library files, each with the length of its real body. The scheduler asks your
# allocator for every place. It must end up with the same memory, step by step, as with the one in
# the library.

# %% key="17-engine"
model = load("lab-target")
requests = completions(model.tokenizer, count=24, longest=256)


def serve(**options):
    """Serve all requests with exact reservations: the scheduler, with a map of every step."""
    scheduler = ReservingScheduler(to_model_len=False, **options)
    llm = LLM(model, scheduler=scheduler, num_blocks=48, max_model_len=256)
    llm.generate([r.prompt for r in requests], [r.params for r in requests])
    return scheduler


ours = serve()
print(f"{len(ours.maps)} steps on {ours.memory.num_slots} slots")

# %% key="17-mine" exercise="17.6" tags=["check"]
mine = serve(allocator=FirstFit)
assert mine.maps == ours.maps
show(contiguous_map(mine.maps, title="Where did your allocator put them?"))


# %% [markdown] key="17-count-prose" lang="en"
# Your two measures, on every step of that run. `region.length` and `region.used` are those of a
# reservation, and what it used at its end is known from its last step.

# %% key="17-count" exercise="17.2" tags=["check"]
final = {}
for shot in ours.maps:
    final |= {r.owner: r.used for r in shot.regions if not r.free}
worst, empty = 0.0, {"later": 0, "never": 0}
for shot in ours.maps:
    holes = [(r.start, r.length) for r in shot.regions if r.free]
    worst = max(worst, external_fragmentation(holes))
    assert external_fragmentation(holes) == shot.external_fragmentation
    for r in (r for r in shot.regions if not r.free):
        for kind, count in waste(r.length, r.used, final[r.owner]).items():
            empty[kind] += count
print(f"external fragmentation: at most {worst:.0%}")
print(f"empty slots x steps: {empty}")
assert sum(empty.values()) == sum(shot.internal_waste for shot in ours.maps)

# %% [markdown] key="17-close" lang="en"
# "Never" is small here, since the lengths were known; what is left is rounding to whole blocks.
#
# **Change one thing**: let `first_fit` return the *shortest* hole that is long enough (best fit),
# and run the cells after it one by one. Two checks and the comparison with the library will
# complain. `mine.refusals` has an entry for each step, `None` where nobody was refused. How often
# was it for holes alone (`error.fragmented`)? More, less or as often as in `ours.refusals`?
