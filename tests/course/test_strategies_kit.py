"""What chapter 09 and its exercise run: strategies on one set of requests, servers that repeat."""

from __future__ import annotations

import pytest

from llmserve_lab.course.bench import Bench
from llmserve_lab.course.strategies import (
    CONTINUOUS,
    NOTHING,
    QUANTIZED,
    REUSE,
    SPECULATIVE,
    STRATEGIES,
    engine_with,
    greedy_lengths,
    same_tokens,
    serve_with,
    shared_prefix_requests,
)


@pytest.fixture(scope="module")
def requests():
    from llmserve_lab import load

    tokenizer = load("lab-target", "float32").tokenizer
    return shared_prefix_requests(tokenizer, 6, shared=32, own=6), greedy_lengths(
        [2, 9, 4, 6, 3, 5]
    )


@pytest.fixture(scope="module")
def runs(requests):
    prompts, params = requests
    names = {NOTHING: (), REUSE: (REUSE,), CONTINUOUS: (CONTINUOUS,), SPECULATIVE: (SPECULATIVE,)}
    return {label: serve_with(n, prompts, params, label, places=2) for label, n in names.items()}


def test_requests_share_what_they_are_asked_to(requests):
    ids = [prompt["prompt_token_ids"] for prompt in requests[0]]
    assert {len(each) for each in ids} == {38}
    assert len({tuple(each[:32]) for each in ids}) == 1
    assert len({tuple(each) for each in ids}) == 6


def test_without_strategies_each_batch_takes_as_long_as_its_longest(runs):
    none = runs[NOTHING]
    assert none.steps == 9 + 6 + 5 == len(none.trace)
    assert none.output_tokens == 29
    assert none.computed_tokens == 6 * 38 + 29 - 6
    assert none.proposed_tokens == 0


def test_each_strategy_saves_its_own(runs):
    none = runs[NOTHING]
    assert runs[CONTINUOUS].steps < none.steps == runs[REUSE].steps
    assert runs[REUSE].computed_tokens == none.computed_tokens - 5 * 32  # computed once
    assert runs[SPECULATIVE].steps < none.steps
    assert runs[SPECULATIVE].computed_tokens > none.computed_tokens
    assert len({run.texts for run in runs.values()}) == 1


def test_lines_fit_a_page(runs):
    for run in runs.values():
        assert len(str(run)) <= 72 and len(run.times) <= 72
        assert str(run.steps) in str(run)


def test_engines_have_what_was_asked_for():
    llm = engine_with(*STRATEGIES, num_blocks=8)
    assert llm.capacity.block_bytes < engine_with(num_blocks=8).capacity.block_bytes
    assert llm.pool.enable_prefix_caching
    with pytest.raises(ValueError, match="There is no 'caching'; there are continuous batching"):
        engine_with("caching")


def test_same_tokens():
    assert same_tokens([1, 2, 3], [1, 2, 4]) == 2
    assert same_tokens([1, 2], [1, 2, 4]) == 2
    assert same_tokens([], [1]) == 0


class TestBench:
    one_user = Bench(shared=0, own=64, answers=(60, 90), places=1, count=6)

    def test_it_always_does_the_same(self):
        assert self.one_user.run(SPECULATIVE) == Bench(0, 64, (60, 90), 1, 6).run(SPECULATIVE)
        assert self.one_user.run() is not self.one_user.run()

    def test_a_server_that_waits_for_bytes_gains_from_drafts_and_from_8_bits(self):
        none = self.one_user.run()
        assert self.one_user.run(SPECULATIVE)["pace"] < 0.8 * none["pace"]
        assert self.one_user.run(QUANTIZED)["pace"] < 0.6 * none["pace"]
        assert self.one_user.run(CONTINUOUS) == self.one_user.run(REUSE) == none

    def test_drafts_that_are_always_wrong_cost(self):
        bench = Bench(shared=0, own=64, answers=(60, 90), places=1, count=6, alpha=0.0)
        assert bench.run(SPECULATIVE)["pace"] > bench.run()["pace"]

    def test_memory_counts_the_draft_too(self):
        assert self.one_user.run(SPECULATIVE)["memory"] > self.one_user.run()["memory"] + 2
        assert self.one_user.run(QUANTIZED)["memory"] < 0.6 * self.one_user.run()["memory"]

    def test_an_unknown_strategy_is_refused(self):
        with pytest.raises(ValueError, match="There is no 'more GPUs'"):
            self.one_user.run("more GPUs")
