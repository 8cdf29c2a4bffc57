"""What chapter 17 counts with: slot use, real lengths, reservations by a guess, compaction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_lab import LLM, Scheduler, load
from llmserve_lab.course.compacting import CompactingScheduler
from llmserve_lab.course.completions import all_completions, completions
from llmserve_lab.course.guessing import GuessingScheduler
from llmserve_lab.course.slot_use import SlotUse, slot_uses
from llmserve_lab.engine.reserving_scheduler import ReservingScheduler
from llmserve_lab.kv_cache import ContiguousAllocator, OutOfMemoryError
from llmserve_lab.models.corpus import held_out_sample

BLOCKS = 16  # of 16 slots


@pytest.fixture(scope="module")
def model():
    return load("lab-target", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def asked(model):
    return completions(model.tokenizer, count=10, longest=100, seed=1)


def served(model, asked, scheduler):
    llm = LLM(model, scheduler=scheduler, num_blocks=BLOCKS, max_model_len=128)
    outputs = llm.generate([each.prompt for each in asked], [each.params for each in asked])
    return llm, [output.outputs[0].token_ids for output in outputs]


@pytest.fixture(scope="module")
def paged(model, asked):
    return served(model, asked, Scheduler())


class TestSlotUse:
    def test_five_parts_of_a_memory_that_is_written_down(self):
        memory, shots = ContiguousAllocator(20), []
        for name, length in (("a", 6), ("b", 4), ("c", 5)):
            memory.allocate(name, length)
        memory.append("a", 2)
        memory.append("c", 5)
        shots.append(memory.snapshot())
        memory.append("a", 2)
        memory.free("b")
        shots.append(memory.snapshot())
        first, second = slot_uses(shots)
        assert first == SlotUse(used=7, later=2, never=6, largest_free_run=5, scattered=0)
        assert second == SlotUse(used=9, later=0, never=2, largest_free_run=5, scattered=4)
        assert SlotUse.sum([first, second]) == SlotUse(16, 2, 8, 10, 4)

    @given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12), st.booleans()), min_size=1))
    @settings(max_examples=60)
    def test_the_parts_add_up_and_agree_with_the_map(self, steps):
        memory, shots = ContiguousAllocator(64), []
        for name, (length, used, stays) in enumerate(steps):
            try:
                memory.allocate(str(name), length)
            except OutOfMemoryError:
                continue
            shots.append(memory.snapshot())
            memory.append(str(name), min(used, length))
            shots.append(memory.snapshot())
            if not stays:
                memory.free(str(name))
        for shot, use in zip(shots, slot_uses(shots), strict=True):
            assert use.slots == 64 and use.free == shot.num_free
            assert use.reserved == shot.num_reserved and use.used == shot.num_used
            assert use.later + use.never == shot.internal_waste and min(use.later, use.never) >= 0

    def test_at_its_end_a_request_waits_for_no_token(self, model, asked):
        scheduler = ReservingScheduler()
        served(model, asked, scheduler)
        assert slot_uses(scheduler.maps)[-1].later == 0

    def test_nothing_served_is_told(self):
        with pytest.raises(ValueError, match="serve something"):
            slot_uses([])


class TestCompletions:
    def test_prompt_and_body_are_the_function(self, model):
        decode, found = model.tokenizer.decode, all_completions(model.tokenizer)
        (getpass,) = [each for each in found if each.name == "getpass.py: fallback_getpass"]
        (text,) = [file.text for file in held_out_sample() if file.name == "getpass.py"]
        prompt = decode(getpass.prompt_token_ids)
        assert prompt == "def fallback_getpass(prompt='Password: ', stream=None):\n"
        body = text[text.index(prompt) + len(prompt) :].split("\n\n\n")[0] + "\n"
        assert getpass.num_output_tokens == len(model.tokenizer(body)["input_ids"])

    def test_a_docstring_belongs_to_the_prompt(self, model):
        found = {each.name: each for each in all_completions(model.tokenizer)}
        prompt = model.tokenizer.decode(found["textwrap.py: dedent"].prompt_token_ids)
        assert prompt.startswith("def dedent(text):") and prompt.endswith('    """\n')

    def test_they_are_many_short_ones_and_few_long_ones(self, model):
        lengths = sorted(each.num_tokens for each in all_completions(model.tokenizer))
        assert len(lengths) > 200
        assert 2 * lengths[len(lengths) // 2] < lengths[-len(lengths) // 20]

    def test_a_draw_is_repeated_by_its_seed(self, model, asked):
        assert completions(model.tokenizer, 10, 100, seed=1) == asked
        assert completions(model.tokenizer, 10, 100, seed=2) != asked
        assert len({each.name for each in asked}) == 10
        assert max(each.num_tokens for each in asked) <= 100

    @pytest.mark.parametrize("count", [0, 100_000])
    def test_more_than_there_are_is_refused(self, model, count):
        with pytest.raises(ValueError, match="functions of at most 200 tokens"):
            completions(model.tokenizer, count, 200)


class TestGuessing:
    def test_a_small_guess_sends_requests_back_and_writes_the_same(self, model, asked, paged):
        llm, tokens = served(model, asked, GuessingScheduler(32))
        assert tokens == paged[1] and llm.metrics.preemptions > 0
        assert llm.metrics.computed_tokens > paged[0].metrics.computed_tokens

    def test_a_guess_that_covers_all_sends_nobody_back(self, model, asked, paged):
        llm, tokens = served(model, asked, GuessingScheduler(112))
        assert tokens == paged[1] and llm.metrics.preemptions == 0

    def test_it_reserves_the_guess_or_a_doubled_one(self, model, asked):
        scheduler = GuessingScheduler(32)
        served(model, asked, scheduler)
        lengths = {r.length for shot in scheduler.maps for r in shot.regions if not r.free}
        assert 32 in lengths and lengths <= {32, 64, 128}

    def test_a_guess_of_nothing_is_refused(self):
        with pytest.raises(ValueError, match="at least 1 token"):
            GuessingScheduler(0)


class TestCompacting:
    def test_nobody_is_kept_out_by_holes_and_the_tokens_are_the_same(self, model, asked, paged):
        plain, moving = ReservingScheduler(to_model_len=False), CompactingScheduler()
        assert served(model, asked, plain)[1] == paged[1]
        llm, tokens = served(model, asked, moving)
        assert tokens == paged[1]
        assert any(error is not None and error.fragmented for error in plain.refusals)
        assert not any(error is not None and error.fragmented for error in moving.refusals)
        assert moving.num_compactions > 0 and moving.moved_tokens > 0
        assert llm.pool.num_free == BLOCKS
        llm.pool.check_integrity()
