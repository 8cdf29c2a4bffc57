"""Outputs in bf16 may part where two tokens are nearly as good, and nowhere else."""

import pytest
import torch

from benchmarks.comparison.near_tie import NEAR, NearTies, shortfalls_of
from tests.conftest import tiny_llama

PROMPTS = ((1, 2), (3,))
OURS = ((10, 11, 12), (20, 21))


def judge(table):
    """Shortfalls by output; those not in the table are all zero."""
    return NearTies(PROMPTS, lambda prompt, output: table.get(output, [0.0] * len(output)))


def test_equal_outputs_are_not_even_looked_at():
    def never(prompt, output):
        raise AssertionError("nothing to judge")

    assert NearTies(PROMPTS, never)(OURS, OURS) == []


def test_a_near_tie_passes_and_is_noted():
    theirs = ((10, 99, 98), (20, 21))
    near = judge({(10, 99, 98): [0.0, NEAR, NEAR / 2]})
    assert near(OURS, theirs) == []
    assert near.largest == NEAR


def test_a_token_that_is_clearly_worse_is_a_fault():
    (reason,) = judge({(20, 99): [0.0, 1.5]})(OURS, ((10, 11, 12), (20, 99)))
    assert "output token 1 of request 1 is 1.50 standard deviations below" in reason


def test_tokens_after_a_near_tie_must_be_good_too():
    (reason,) = judge({(10, 99, 98): [0.0, 0.1, 3.0]})(OURS, ((10, 99, 98), (20, 21)))
    assert "output token 2 of request 0" in reason


def test_our_own_fault_is_found_as_well():
    (reason,) = judge({(20, 21): [0.0, 2.0]})(OURS, ((10, 11, 12), (20, 99)))
    assert "output token 1 of request 1" in reason


def test_what_came_before_the_difference_is_not_judged():
    assert judge({(20, 99): [9.0, 0.0]})(OURS, ((10, 11, 12), (20, 99))) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    tiny_llama().save_pretrained(path)
    return path


def test_shortfalls_are_those_of_the_weights(folder):
    model, prompt = tiny_llama(), (1, 2, 3)
    ids = torch.tensor([prompt])
    greedy = model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)
    output = tuple(greedy[0, len(prompt) :].tolist())
    shortfalls = shortfalls_of(folder)
    assert shortfalls(prompt, output) == pytest.approx([0.0] * 6, abs=1e-5)
    with torch.inference_mode():
        logits = model(greedy[:, :5]).logits[0, -1]
    worst = int(logits.argmin())
    found = shortfalls(prompt, (*output[:2], worst, *output[3:]))
    assert found[2] == pytest.approx(float((logits.max() - logits.min()) / logits.std()), rel=1e-4)
    assert found[2] > NEAR
